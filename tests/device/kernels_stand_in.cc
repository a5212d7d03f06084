#include "tests/device/kernels_stand_in.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <memory>

#include "tests/device/stand_in_memory.h"

namespace equipoise::testing {
namespace {

[[maybe_unused]] const bool kUsed = [] {
  UseOwnKernels(true);
  return true;
}();

}  // namespace

void UseOwnKernels(bool use) {
  static std::unique_ptr<torch::Library> kernels;
  kernels.reset();
  if (!use) return;
  kernels = std::make_unique<torch::Library>(torch::Library::IMPL, "equipoise",
                                             c10::DispatchKey::CUDA, __FILE__, __LINE__);
  for (const char* name : {"swi_glu", "swi_glu_gradient", "rotary", "softmax_statistics",
                           "cross_entropy_gradient_", "column_sums", "dropped", "scaled",
                           "unpack_int8", "unpack_nf4", "unpack_gptq", "adamw_", "square_nodes"})
    kernels->impl(name, torch::CppFunction::makeFromBoxedFunction<&RunOnHost>());
}

}  // namespace equipoise::testing
