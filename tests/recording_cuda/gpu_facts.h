#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

// The GPU that the recording libraries claim to be.
struct GpuClaim {
  const char* name;
  int64_t memory_bytes;  // as the driver of such a GPU tells
  int major, minor;      // compute capability
  int multiprocessors;
  int shared_bytes;  // the most that a block may ask for
};

inline const GpuClaim& ClaimedGpu() {
  static constexpr GpuClaim kH200 = {"NVIDIA H200", 150754820096, 9, 0, 132, 232448};
  static constexpr GpuClaim kH100 = {"NVIDIA H100 80GB HBM3", 85045018624, 9, 0, 132, 232448};
  static constexpr GpuClaim kA100 = {"NVIDIA A100-SXM4-80GB", 85051572224, 8, 0, 108, 166912};
  static constexpr GpuClaim kOther = {"NVIDIA Prototype", 25769803776, 9, 0, 100, 232448};
  static const GpuClaim claimed = [] {
    const char* asked = std::getenv("RECORDING_CUDA_DEVICE");
    const std::string_view device = asked == nullptr ? "h200" : asked;
    GpuClaim claim = device == "a100"    ? kA100
                     : device == "h100"  ? kH100
                     : device == "other" ? kOther
                                         : kH200;
    if (const char* mib = std::getenv("RECORDING_CUDA_MEMORY_MIB"))
      claim.memory_bytes = std::atoll(mib) << 20;
    return claim;
  }();
  return claimed;
}

// RECORDING_CUDA_FAULT: what is wrong with the GPU; empty: nothing.
inline std::string_view ClaimedFault() {
  const char* fault = std::getenv("RECORDING_CUDA_FAULT");
  return fault == nullptr ? "" : fault;
}

inline int ClaimedGpus() {
  static const int count = [] {
    const char* asked = std::getenv("RECORDING_CUDA_GPUS");
    return asked == nullptr ? 1 : std::atoi(asked);
  }();
  return count;
}
