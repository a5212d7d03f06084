#pragma once

#include <cstdint>
#include <string>

namespace equipoise {

// NVIDIA's driver, which every machine with a usable GPU has: it tells of the GPUs before the
// libraries are opened that compute on them.
class NvidiaDriver {
 public:
  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR of cuda.h.
  static constexpr int kMajorCapability = 75;

  NvidiaDriver();

  bool found() const { return handle_ != nullptr; }
  // Starts it. Throws ConfigError that says why there is no GPU.
  int CountGpus() const;
  // REQUIRES, here and below: CountGpus() > index.
  std::string NameOf(int index) const;
  int64_t MemoryOf(int index) const;  // bytes, in all
  // 8 of compute capability 8.6.
  int MajorCapability(int index) const;

 private:
  template <class Signature, class... Arguments>
  int Call(const char* symbol, Arguments... arguments) const;

  void* handle_;  // never closed: CUDA goes on using it
};

}  // namespace equipoise
