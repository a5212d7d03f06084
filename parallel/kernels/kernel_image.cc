#include "parallel/kernels/kernel_image.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

#include "configs/base/error.h"

namespace equipoise {

KernelImage::KernelImage(const void* image, const std::vector<std::string>& names)
    : driver_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
  if (image == nullptr) throw RunError("the program was built without nvcc");
  if (driver_ == nullptr) throw RunError("NVIDIA's driver, libcuda.so.1, is not there");
  Call<int(void**)>("cuCtxGetCurrent", &context_);
  void* module = nullptr;
  Call<int(void**, const void*)>("cuModuleLoadData", &module, image);
  for (const std::string& name : names) {
    Call<int(void**, void*, const char*)>("cuModuleGetFunction", &functions_[name], module,
                                          name.c_str());
  }
}

void KernelImage::Launch(const std::string& name, size_t blocks, unsigned threads,
                         const void* argument, void* stream) const {
  if (blocks == 0) return;
  // A thread that has not used CUDA yet has no context, and only the runtime would give it one.
  void* current = nullptr;
  Call<int(void**)>("cuCtxGetCurrent", &current);
  if (current == nullptr) Call<int(void*)>("cuCtxSetCurrent", context_);
  std::array<const void*, 1> arguments = {argument};
  Call<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
           const void**, void**)>("cuLaunchKernel", functions_.at(name),
                                  static_cast<unsigned>(blocks), 1U, 1U, threads, 1U, 1U, 0U,
                                  stream, arguments.data(), nullptr);
}

template <class Signature, class... Arguments>
void KernelImage::Call(const char* symbol, Arguments... arguments) const {
  auto* function = reinterpret_cast<Signature*>(dlsym(driver_, symbol));
  if (function == nullptr) throw RunError(fmt::format("NVIDIA's driver has no {}", symbol));
  const int error = function(arguments...);
  if (error == 0) return;
  const char* text = nullptr;
  if (auto* describe =
          reinterpret_cast<int (*)(int, const char**)>(dlsym(driver_, "cuGetErrorString"))) {
    describe(error, &text);
  }
  throw RunError(
      fmt::format("{}: error {}, {}", symbol, error, text == nullptr ? "which is unknown" : text));
}

}  // namespace equipoise
