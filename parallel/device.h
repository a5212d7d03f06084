#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <memory>

namespace equipoise {

// Copies a tensor to `device`; returns the tensor itself where it is there already. From the CPU to
// a GPU the copy goes through pinned memory and is asynchronous: it runs on the compute stream, in
// order with the kernels given to it.
at::Tensor ToDevice(const at::Tensor& tensor, at::Device device);

// Returns when all work given to the device is done; at once for the CPU.
void Synchronize(at::Device device);

// A clock for work given to a device. A GPU runs asynchronously to the host: a mark there is an
// event in the compute stream, whose time is known once the stream has reached it.
class DeviceClock {
 public:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    Clock::time_point host;       // when the mark was made
    std::shared_ptr<void> event;  // of the compute stream; null on the CPU
  };

  explicit DeviceClock(at::Device device) : device_(device) {}
  // Whether the device runs asynchronously to the host.
  bool runs_behind() const { return !device_.is_cpu(); }
  // Sets the origin that GPU events are timed against; waits for the compute stream. To be called
  // before the first mark.
  void Start();
  Mark Now() const;
  // Waits for the device, so that all marks have a time.
  void Finish() const { Synchronize(device_); }
  // REQUIRES: Finish() was called since the mark was made.
  Clock::time_point TimeOf(const Mark& mark) const;

 private:
  at::Device device_;
  Mark origin_;
};

// Seconds that a device takes for the work that `give` gives it.
double DeviceSeconds(at::Device device, const std::function<void()>& give);

}  // namespace equipoise
