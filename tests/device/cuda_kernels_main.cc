// Asks LibTorch's library for CUDA, which opens without a driver, about operations: reads their
// names, and prints "NAME yes" where one has a kernel for CUDA or is made of others, else "NAME
// no".
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <cstdio>
#include <iostream>
#include <string>

namespace {

bool HasCudaKernel(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  const auto op = c10::Dispatcher::singleton().findSchema({name.substr(0, dot), overload});
  return op && op->hasComputedKernelForDispatchKey(c10::DispatchKey::CUDA);
}

}  // namespace

int main() {
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 3;
  }
  for (std::string name; std::getline(std::cin, name);) {
    std::printf("%s %s\n", name.c_str(), HasCudaKernel(name) ? "yes" : "no");
  }
  return 0;
}
