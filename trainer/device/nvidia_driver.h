#pragma once

#include <cstdint>
#include <string>

namespace equipoise {

// The driver API of NVIDIA (libcuda), opened at run time: it describes the GPUs of a machine before
// LibTorch's CUDA libraries are opened.
class NvidiaDriver {
 public:
  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR of cuda.h.
  static constexpr int kMajorCapability = 75;

  NvidiaDriver();

  bool found() const { return handle_ != nullptr; }
  // Initializes the driver and returns the number of GPUs. Throws ConfigError with the reason when
  // there is none.
  int CountGpus() const;
  // REQUIRES, here and below: CountGpus() > index.
  std::string NameOf(int index) const;
  int64_t MemoryOf(int index) const;  // bytes in total
  // Major compute capability, such as 8 for 8.6.
  int MajorCapability(int index) const;

 private:
  template <class Signature, class... Arguments>
  int Call(const char* symbol, Arguments... arguments) const;

  void* handle_;  // never closed, as CUDA continues to use it
};

}  // namespace equipoise
