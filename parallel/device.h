#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>

namespace equipoise {

// The tensor on `device`; itself where it is there. From the CPU to a GPU it goes through pinned
// memory, so that the copy runs beside the host, in the order of the compute stream.
at::Tensor ToDevice(const at::Tensor& tensor, at::Device device);

// Returns when the device has done what it was given; at once for the CPU.
void Synchronize(at::Device device);

// When the work given to a device begins and ends. A GPU runs behind the host: a mark there is an
// event in the compute stream, whose time is known once it has been reached.
class DeviceClock {
 public:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    Clock::time_point host;       // when it was made
    std::shared_ptr<void> event;  // on a GPU
  };

  explicit DeviceClock(at::Device device) : device_(device) {}
  bool runs_behind() const { return !device_.is_cpu(); }
  // Waits for the device: times are counted from here. To be called before the first mark.
  void Start();
  Mark Now() const;
  // Waits for the device, and so for all marks.
  void Finish() const { Synchronize(device_); }
  // REQUIRES: Finish() was called since the mark was made.
  Clock::time_point TimeOf(const Mark& mark) const;

 private:
  at::Device device_;
  Mark origin_;
};

}  // namespace equipoise
