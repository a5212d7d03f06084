#include "tests/device/kernels_stand_in.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <memory>

#include "tests/device/stand_in_memory.h"

namespace equipoise::testing {
namespace {

// The row functions of an operator on the tensors' memory.
template <class... Arguments>
at::Tensor OnRows(const char* name, const at::TensorList& tensors, Arguments... arguments) {
  const at::Tensor y = c10::Dispatcher::singleton()
                           .findSchemaOrThrow(name, "")
                           .typed<at::Tensor(const Arguments&...)>()
                           .call(arguments...);
  const at::Tensor result = ToStandIn(y, tensors[0].options());
  ReportUses(name, tensors, {result});
  return result;
}

at::Tensor SwiGlu(const at::Tensor& gate_up) {
  return OnRows("equipoise::swi_glu", {gate_up}, StandInOnHost(gate_up));
}

at::Tensor SwiGluGradient(const at::Tensor& g, const at::Tensor& gate_up) {
  return OnRows("equipoise::swi_glu_gradient", {g, gate_up}, StandInOnHost(g),
                StandInOnHost(gate_up));
}

at::Tensor Rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                  double direction) {
  using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, double);
  const at::Tensor y =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("equipoise::rotary", "")
          .typed<Signature>()
          .call(StandInOnHost(x), StandInOnHost(cos), StandInOnHost(sin), direction);
  const at::Tensor result = ToStandIn(y, x.options());
  ReportUses("equipoise::rotary", {x, cos, sin}, {result});
  return result;
}

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
  kernels->impl("swi_glu", &SwiGlu);
  kernels->impl("swi_glu_gradient", &SwiGluGradient);
  kernels->impl("rotary", &Rotary);
}

}  // namespace equipoise::testing
