#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace equipoise {

// CUDA kernels of the program's own, compiled for several architectures (third_party/cuda.bzl,
// cuda_image). They are loaded by NVIDIA's driver, which is opened at run time: nothing links CUDA.
class KernelImage {
 public:
  // Loads `names` from `image` onto the thread's current GPU, which LibTorch has set up. Throws
  // RunError with the cause.
  KernelImage(const void* image, const std::vector<std::string>& names);

  // Starts `blocks` blocks of `threads` threads on a stream, by CUDA's handle; null: the default
  // stream. `argument`, the kernel's only one, is copied. Thread-safe. Throws RunError.
  void Launch(const std::string& name, size_t blocks, unsigned threads, const void* argument,
              void* stream) const;

 private:
  template <class Signature, class... Arguments>
  void Call(const char* symbol, Arguments... arguments) const;

  void* driver_;             // never closed, as CUDA continues to use it
  void* context_ = nullptr;  // of LibTorch
  std::map<std::string, void*> functions_;
};

}  // namespace equipoise
