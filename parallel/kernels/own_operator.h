#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <utility>

namespace equipoise {

// An operator of LibTorch's dispatcher that is a kernel of the program's own, such as
// "equipoise::rotary". Who calls it links no kernel: a program that has none does without.
template <class Signature>
class OwnOperator {
 public:
  explicit OwnOperator(const char* name)
      : handle_(c10::Dispatcher::singleton().findSchema({name, ""})) {}

  // Whether x is on a GPU for which the kernel is loaded.
  bool IsFor(const at::Tensor& x) const {
    return x.is_cuda() && handle_ && handle_->hasKernelForDispatchKey(c10::DispatchKey::CUDA);
  }
  // REQUIRES: IsFor() the arguments.
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) const {
    return handle_->typed<Signature>().call(std::forward<Arguments>(arguments)...);
  }

 private:
  std::optional<c10::OperatorHandle> handle_;
};

}  // namespace equipoise
