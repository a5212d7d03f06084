#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>

namespace equipoise {

// Streams of a GPU: what is given to one runs in order, beside what is given to another. The
// compute stream of a thread is ATen's current one: the default stream, unless a c10::StreamGuard
// says otherwise. CPUs have none, and nothing to wait for.

// REQUIRES: a GPU.
c10::Stream ComputeStream(at::Device device);
// A stream beside the default one; none on a CPU.
std::optional<c10::Stream> StreamBeside(at::Device device);
// CUDA's handle of the compute stream; null for the default stream.
void* ComputeStreamHandle(at::Device device);

// Returns when the compute stream has done what it was given; at once on a CPU. What other streams
// do goes on.
void WaitForComputeStream(at::Device device);

// A place in a stream. By default empty, as on a CPU.
class StreamMark {
 public:
  StreamMark() = default;
  explicit StreamMark(c10::Event event) : event_(std::move(event)) {}
  // Behind all that the stream has been given.
  static StreamMark Of(const c10::Stream& stream);
  // Of the compute stream.
  static StreamMark Here(at::Device device);

  // Returns when what the stream was given before is done.
  void Wait() const;
  // Lets what the compute stream is given from now on wait for it; the host goes on.
  void WaitOnStream() const;
  // The same for another stream.
  void HoldUp(const c10::Stream& stream) const;

 private:
  std::optional<c10::Event> event_;
};

// A tensor of one stream that the compute stream uses too: its memory is not given away again
// before the latter has done what it was given until the tensor is freed. Nothing on a CPU.
void UseOnStream(const at::Tensor& tensor);

}  // namespace equipoise
