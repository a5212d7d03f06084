#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "models/micro_batch.h"
#include "parallel/parameter.h"

namespace equipoise {

// Unit of partition, profile and recompute: patch embedding, one ViT block, pixel shuffle +
// projector, token embedding + image splice, one LLM block, final norm + head + loss.
//
// One tensor goes in and one comes out; the chain is
//   (nothing) -> patch embedding -> [tiles, patches + 1, vision hidden] -> blocks -> projector
//   -> [image tokens, hidden] -> embedding + splice -> [tokens, hidden] -> blocks -> head.
// An undefined tensor stands for "no rows" (a micro-batch without tiles).
//
// Forward records an autograd graph when gradients are enabled; the graph never leaves the layer:
// Stage detaches the input and walks the layers backwards itself. Weights are no leaves of the
// graph: our functions fetch them from their handles and add to the handles' gradients.
class Layer {
 public:
  explicit Layer(std::string name) : name_(std::move(name)) {}
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  virtual at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input) = 0;

  // Such as "model.language_model.layers.3": with its index in the whole model, on every stage.
  const std::string& name() const { return name_; }
  // In the order of use. Every layer owns its parameters.
  const std::vector<Parameter*>& parameters() const { return parameter_list_; }
  bool trainable() const {
    for (const Parameter* p : parameter_list_) {
      if (p->trainable) return true;
    }
    return false;
  }
  bool recompute = false;   // forward again during backward instead of keeping activations

 protected:
  // Declares a parameter; `name` is appended to the layer's own name unless it begins with '/'.
  Parameter& AddParameter(const std::string& name, std::vector<int64_t> shape);

 private:
  std::string name_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<Parameter*> parameter_list_;
};

}  // namespace equipoise
