#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/layers/linears.h"
#include "models/layers/micro_batch.h"
#include "models/spec/layer_spec.h"
#include "models/spec/tensor_parallel.h"
#include "parallel/parameter.h"
#include "parallel/plan.h"

namespace equipoise {

// Unit of partition, profile and recompute: patch embedding, one ViT block, pixel shuffle +
// projector, token embedding + image splice, one LLM block, final norm + head + loss.
//
// One tensor goes in and one comes out; the chain is
//   (nothing) -> patch embedding -> [tiles, patches + 1, vision hidden] -> blocks -> projector
//   -> [image tokens, hidden] -> embedding + splice -> [tokens, hidden] -> blocks -> head.
// An undefined tensor stands for "no rows" (a micro-batch without tiles, or without tokens).
//
// Forward records an autograd graph when gradients are enabled; the graph never leaves the layer:
// Stage detaches the input and walks the layers backwards itself. Weights are no leaves of the
// graph: our functions fetch them from their handles and add to the handles' gradients.
class Layer {
 public:
  // Declares the parameters of `spec`: of each, this rank's part. Throws ConfigError for more ranks
  // than can share them.
  explicit Layer(LayerSpec spec, const TensorParallel& tensor = {});
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  // `loss_scale` concerns the head alone: its loss, and all gradients with it, are times this.
  virtual at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input,
                             double loss_scale) = 0;
  // Whether Forward may run a second time to make the same activations again. Not the head's, which
  // has made its gradients with the loss, and keeps nothing else.
  virtual bool can_recompute() const { return true; }

  // A transformer block is two halves with a residual around each, and Forward is one after the
  // other, so that each may keep its activations or have them made again.
  enum class Half { kAttention, kMlp };
  bool has_halves() const { return spec_.has_halves; }
  // REQUIRES: has_halves(). Shapes as Forward's.
  virtual at::Tensor ForwardHalf(Half half, const MicroBatch& batch, const at::Tensor& input);

  const LayerSpec& spec() const { return spec_; }
  // Name, such as "language_model.model.layers.3": the prefix of its parameters' Hugging Face
  // names, with its index in the whole model, on every stage.
  const std::string& name() const { return spec_.name; }
  // In the order of use. Every parameter belongs to one layer; a tied head borrows the embedding's,
  // which is not listed here a second time.
  const std::vector<Parameter*>& parameters() const { return parameter_list_; }
  // Whether backward has a gradient to add, to a borrowed parameter too.
  bool trainable() const;

  Recompute recompute = Recompute::kNone;  // forward again during backward, keeping inputs alone

 protected:
  // The parameter of the spec whose name is this, or ends so after a dot. REQUIRES: there is one,
  // and one only.
  Parameter& Get(const std::string& suffix) const;
  // Null where there is none.
  Parameter* Find(const std::string& suffix) const;
  // NAME.weight and NAME.bias, where there is one, of linears that share their input. In the spec
  // weights stand before biases, so that ops::FusedLinear finds each kind in one piece. Those whose
  // share several ranks hold come last.
  ColumnLinears GetColumnLinears(const std::vector<std::string>& names) const;
  RowLinear GetRowLinear(const std::string& name) const;
  // Adds a parameter that the spec lists elsewhere.
  Parameter& Add(const TensorSpec& spec);
  // Uses a parameter of another layer, which must outlive this one.
  void BorrowParameter(Parameter& parameter) { borrowed_.push_back(&parameter); }
  const TensorParallel& tensor() const { return tensor_; }

 private:
  // This rank's range of the dimension that a parameter is split by. REQUIRES: it is split.
  Share ShareOf(const std::string& suffix) const;

  LayerSpec spec_;
  TensorParallel tensor_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<Parameter*> parameter_list_, borrowed_;
};

}  // namespace equipoise
