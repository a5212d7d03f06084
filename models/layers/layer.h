#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/layers/linears.h"
#include "models/layers/micro_batch.h"
#include "models/layers/tensor_parallel.h"
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
  explicit Layer(std::string name, const TensorParallel& tensor = {})
      : name_(std::move(name)), tensor_(tensor) {}
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
  virtual bool has_halves() const { return false; }
  // REQUIRES: has_halves(). Shapes as Forward's.
  virtual at::Tensor ForwardHalf(Half half, const MicroBatch& batch, const at::Tensor& input);

  // Such as "language_model.model.layers.3": the prefix of its parameters' Hugging Face names, with
  // its index in the whole model, on every stage.
  const std::string& name() const { return name_; }
  // In the order of use. Every parameter belongs to one layer; a tied head borrows the embedding's,
  // which is not listed here a second time.
  const std::vector<Parameter*>& parameters() const { return parameter_list_; }
  // Whether backward has a gradient to add, to a borrowed parameter too.
  bool trainable() const;

  Recompute recompute = Recompute::kNone;  // forward again during backward, keeping inputs alone

 protected:
  // Declares a parameter that every tensor-parallel rank holds; `name` is appended to the layer's
  // own name (with a dot) unless it begins with '/': then the rest is the whole name.
  Parameter& AddParameter(const std::string& name, std::vector<int64_t> shape);
  // Declares one of which this rank holds `share` of dimension `dim`; `shape` is the whole one.
  Parameter& AddPart(const std::string& name, std::vector<int64_t> shape, int dim,
                     const Share& share);
  struct LinearShape {
    std::string name;
    Share out;
  };
  // Declares NAME.weight [out, in] and, with `bias`, NAME.bias [out] of linears that share their
  // input: weights first, then biases, so that ops::FusedLinear finds each kind in one piece.
  // Those whose share several ranks hold come last.
  ColumnLinears AddColumnLinears(const std::vector<LinearShape>& linears, int64_t in, bool bias);
  // Declares NAME.weight [out, in] and, with `bias`, NAME.bias [out].
  RowLinear AddRowLinear(const std::string& name, const Share& in, int64_t out, bool bias);
  // Uses a parameter of another layer, which must outlive this one.
  void BorrowParameter(Parameter& parameter) { borrowed_.push_back(&parameter); }
  const TensorParallel& tensor() const { return tensor_; }

 private:
  std::string name_;
  TensorParallel tensor_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<Parameter*> parameter_list_, borrowed_;
};

}  // namespace equipoise
