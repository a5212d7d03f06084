#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <cstdint>
#include <optional>

#include "parallel/streams.h"

namespace equipoise {

// Memory of the host that devices copy from and to beside other work. Throws RunError where the
// machine gives none. Small pieces lose nothing: LibTorch rounds sizes up to powers of two.
at::Tensor PinnedMemory(int64_t numel, at::ScalarType dtype);

// A copy from a device to pinned memory of the host, which runs while the host does other work: on
// the compute stream, in order with all that was given to the device before.
class CopyToHost {
 public:
  CopyToHost() = default;
  // Starts it. REQUIRES: `to` is pinned, as large as `from`, and lives until Wait().
  CopyToHost(const at::Tensor& from, at::Tensor to);

  // Returns when `to` has the numbers, and all that was given to the device before is done.
  void Wait();

 private:
  StreamMark copied_;
};

// Copies between a device and pinned memory beside what the device computes, on a stream of their
// own for each direction, which all share who ask for it. On a CPU there is none: all is done at
// once.
enum class CopyDirection : uint8_t { kToHost, kToDevice };
class CopyStream {
 public:
  CopyStream(at::Device device, CopyDirection direction);

  // Gives the stream what `give` gives the device, behind all that the compute stream has so far.
  // Tensors of the compute stream have to live until that has waited for Mark().
  template <class Give>
  void Run(const Give& give) const {
    Follow();
    const c10::OptionalStreamGuard guard(stream_);
    give();
  }
  // Behind all that the stream has been given.
  StreamMark Mark() const;

 private:
  void Follow() const;

  std::optional<c10::Stream> stream_;
};

}  // namespace equipoise
