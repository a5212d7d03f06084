#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

#include "parallel/parameter.h"

namespace equipoise::ops {

// Recording of our operations in the autograd graph: an operation computes its result without
// recording, then makes one node of its own the result's grad_fn. A node saves activations as plain
// members (SavingNode), reads weights from their Parameters when it runs, and adds their gradients
// there. So the graph never holds a weight, an operation whose input needs no
// gradient still trains its weights, and one with neither records nothing.

// A node that saves activations: what was made in this pass, and what nothing but this pass reads.
class SavingNode : public torch::autograd::Node {
 public:
  using Visit = std::function<void(at::Tensor& saved)>;
  // Visits each; undefined ones too.
  virtual void ForEachSaved(const Visit& visit) = 0;
  void release_variables() override {
    ForEachSaved([](at::Tensor& saved) { saved.reset(); });
  }
};

// A node whose result can be made again from what it has saved in one pass, without a product:
// norms and activation functions.
class ElementwiseNode : public SavingNode {
 public:
  // The result, with the same bits. REQUIRES: its backward has not run.
  virtual at::Tensor ResultAgain() const = 0;
};

// A node whose result has the bits of its only input.
class PassingNode : public torch::autograd::Node {};

// While it lives and is `on`, products that this thread records keep, in place of an input that an
// ElementwiseNode has made, that node (Recompute::kElementwise).
class RecomputeElementwise {
 public:
  explicit RecomputeElementwise(bool on);
  ~RecomputeElementwise();
  RecomputeElementwise(const RecomputeElementwise&) = delete;
  RecomputeElementwise& operator=(const RecomputeElementwise&) = delete;

 private:
  bool before_;
};

// The node that is to be kept in place of x; null where x itself is.
std::shared_ptr<ElementwiseNode> KeptInPlaceOf(const at::Tensor& x);

// The activations that nodes have saved which this thread records while the object lives. At most
// one at a time.
class SavedActivations {
 public:
  SavedActivations();
  ~SavedActivations();
  SavedActivations(const SavedActivations&) = delete;
  SavedActivations& operator=(const SavedActivations&) = delete;

  // Those of the nodes so far; each as often as it is saved.
  std::vector<at::Tensor> All() const;

 private:
  friend void Noted(const std::shared_ptr<torch::autograd::Node>& node);
  std::vector<std::shared_ptr<SavingNode>> nodes_;
};

// Guard under which ATen computes without recording.
using BelowAutograd = at::AutoDispatchBelowADInplaceOrView;

// True when the result of an operation on `inputs` and `weights` needs a node.
bool NeedsNode(std::initializer_list<const at::Tensor*> inputs,
               std::initializer_list<const Parameter*> weights);

// True when gradients are enabled and `input` needs one.
bool NeedsGradient(const at::Tensor& input);

// Makes `node` the grad_fn of `output`. Result i of the node's apply() is the gradient of
// inputs[i]; undefined inputs are allowed, and get none.
void Record(const at::Tensor& output, const std::shared_ptr<torch::autograd::Node>& node,
            std::initializer_list<const at::Tensor*> inputs);
// Record() with several outputs, whose gradients apply() gets in their order.
void Record(const std::vector<at::Tensor>& outputs,
            const std::shared_ptr<torch::autograd::Node>& node,
            const std::vector<at::Tensor>& inputs);

}  // namespace equipoise::ops
