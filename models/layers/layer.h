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

// A layer, the unit of partitioning, profiling and recomputation: patch embedding, one ViT block,
// pixel shuffle + projector, token embedding + image splice, one decoder block, or the final norm,
// head and loss.
//
// A layer has one input tensor and one output tensor; the chain is
//   (nothing) -> patch embedding -> encoder rows -> blocks -> projector
//   -> [image tokens, hidden] -> embedding + splice -> [tokens, hidden] -> blocks -> head,
// with encoder rows [tiles, rows of a tile, vision hidden], or [patches, vision hidden] where
// pictures are taken at their own size.
// An undefined tensor stands for "no rows" (a micro-batch without tiles, or without tokens).
//
// Forward records an autograd graph when gradients are enabled. The graph ends at the layer: Stage
// detaches the input and runs the layers' backward passes itself. Weights are not leaves of the
// graph: ops (models/ops/record.h) get them from their Parameters and add to the gradients there.
class Layer {
 public:
  // Declares this rank's part of each parameter of `spec`. Throws ConfigError for more ranks than
  // can share them.
  explicit Layer(LayerSpec spec, const TensorParallel& tensor = {});
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  // `loss_scale` is a factor of the loss, and so of all gradients; only the head uses it.
  virtual at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input,
                             double loss_scale) = 0;
  // Whether Forward may run a second time for the same activations. The head's may not: it computes
  // its gradients with the loss, and saves nothing else.
  virtual bool can_recompute() const { return true; }

  // The halves of a transformer block, each with a residual around it. Forward computes one after
  // the other, so that each may save its activations or recompute them.
  enum class Half { kAttention, kMlp };
  bool has_halves() const { return spec_.has_halves; }
  // REQUIRES: has_halves(). Shapes as Forward's.
  virtual at::Tensor ForwardHalf(Half half, const MicroBatch& batch, const at::Tensor& input);

  const LayerSpec& spec() const { return spec_; }
  // Name, such as "language_model.model.layers.3": the prefix of the parameters' Hugging Face
  // names, with the layer's index in the whole model.
  const std::string& name() const { return spec_.name; }
  // Parameters in the order of use. Every parameter belongs to one layer; one that a tied head
  // borrows from the embedding is not listed here.
  const std::vector<Parameter*>& parameters() const { return parameter_list_; }
  // Those of another layer that this one uses too: the weight that a tied head shares.
  const std::vector<Parameter*>& borrowed() const { return borrowed_; }
  // Those whose gradients are of this rank's rows alone where tensor ranks share out rows (sequence
  // parallelism): to be summed over these ranks.
  const std::vector<Parameter*>& partial() const { return partial_; }
  // The ranks that share its parameters.
  const TensorParallel& tensor() const { return tensor_; }
  // Whether any parameter, borrowed ones included, is trained.
  bool trainable() const;

  Recompute recompute = Recompute::kNone;  // what backward recomputes from saved inputs
  // What the pass that runs draws at random (dropout): MicroBatch::noise; 0: nothing. Set by Stage.
  uint64_t noise = 0;

 protected:
  // The parameter of this layer whose name is `suffix`, or ends with a dot and `suffix`. REQUIRES:
  // there is exactly one.
  Parameter& Get(const std::string& suffix) const;
  // Get(), or null where there is none. REQUIRES: there is at most one.
  Parameter* Find(const std::string& suffix) const;
  // Get() of a parameter that works on this rank's rows.
  Parameter& GetOfRows(const std::string& suffix);
  // NAME.weight and, where there is one, NAME.bias of linears that share their input. The spec
  // lists weights before biases, so that each kind is contiguous for ops::FusedLinear. Linears
  // whose share several ranks hold come last.
  ColumnLinears GetColumnLinears(const std::vector<std::string>& names);
  RowLinear GetRowLinear(const std::string& name);
  // Adds a parameter that is not in spec().parameters.
  Parameter& Add(const TensorSpec& spec);
  // Uses a parameter of another layer, which must outlive this one.
  void BorrowParameter(Parameter& parameter) { borrowed_.push_back(&parameter); }

 private:
  // The adapters of linear layers; empty where they have none. `begins`: the first column of each
  // among the own or the shared ones.
  Adapters GetAdapters(const std::vector<std::string>& names, const std::vector<int64_t>& begins,
                       size_t first_shared) const;
  // This rank's range of the dimension along which a parameter is split. REQUIRES: it is split.
  Share ShareOf(const std::string& suffix) const;
  void AddPartial(Parameter* parameter);

  LayerSpec spec_;
  TensorParallel tensor_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<Parameter*> parameter_list_, borrowed_, partial_;
};

}  // namespace equipoise
