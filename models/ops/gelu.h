#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace equipoise::ops {

enum class GeluForm {
  kExact,  // x Phi(x)
  kTanh,   // x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
  kQuick,  // CLIP's: x sigmoid(1.702 x)
};

// The form that a config.json's `hidden_act` names: "gelu", "gelu_pytorch_tanh" or "quick_gelu".
GeluForm GeluFormOf(const std::string& hidden_act);

// GELU of each element of x, in its dtype. Saves its input only.
at::Tensor Gelu(const at::Tensor& x, GeluForm form = GeluForm::kExact);

}  // namespace equipoise::ops
