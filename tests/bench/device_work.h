#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace equipoise::testing {

// Work given to a GPU, as the recording CUDA counts it (tests/recording_cuda).
struct DeviceWork {
  int64_t launches = 0;                // kernels and products of cuBLAS
  int64_t copies = 0;                  // within the device, and fills
  int64_t to_device = 0, to_host = 0;  // copies between host and device
  int64_t waits = 0;                   // of the host for the device
  int64_t bytes = 0;                   // inputs and outputs of the operations that gave the work

  DeviceWork& operator+=(const DeviceWork& other);
  DeviceWork operator-(const DeviceWork& other) const;
};

// Counts from construction on; one at a time in a process.
//
// The bytes are those of the tensors that an operation reads and writes, each element once, as the
// dispatcher sees them: what a kernel must move at least. An operation counts where it launches
// something itself, rather than through operations that it calls. Work given outside of operations
// has no bytes.
class DeviceWorkMeter {
 public:
  // Throws ConfigError where the process does not run under the recording CUDA.
  DeviceWorkMeter();
  ~DeviceWorkMeter();
  DeviceWorkMeter(const DeviceWorkMeter&) = delete;
  DeviceWorkMeter& operator=(const DeviceWorkMeter&) = delete;

  // All since the construction.
  DeviceWork Total() const;
  // The same by operation, such as "aten::mm"; launches and copies alone.
  std::map<std::string, DeviceWork> ByOperation() const;

 private:
  uint64_t handle_;
};

}  // namespace equipoise::testing
