#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "models/layers/layer.h"
#include "models/stages/features.h"
#include "models/stages/offloaded_activations.h"

namespace equipoise {

// Consecutive layers on one rank. Runs them forwards on detached inputs, keeps what backward needs
// for each micro-batch in flight, and walks them backwards.
//
// A layer that is recomputed keeps its input, or the input of one of its halves, in place of its
// activations, and runs a second time during backward. What a block keeps may lie in host memory:
// the copies of a layer run while the next is computed, and come back one layer ahead of backward.
//
// Not thread-safe. Gradients have the same bits with and without recompute, and for every
// interleaving of forward and backward passes in which each of the two kinds comes in ascending
// order of micro-batches.
class Stage {
 public:
  explicit Stage(std::vector<std::unique_ptr<Layer>> layers);
  ~Stage();

  // Runs the layers on a micro-batch and keeps the activations under `id` until Backward(id). Input
  // and output have the features that travel on behind their rows (features.h), as do gradients.
  // The first stage's `input` is undefined; another stage's is marked by the caller with
  // requires_grad when its gradient is wanted. The last stage returns the loss (see HeadLayer), an
  // fp64 scalar that already is the sum of its token losses times `loss_scale`.
  // `batch` must live until Backward(id).
  at::Tensor Forward(int id, const MicroBatch& batch, const at::Tensor& input, double loss_scale);

  // Adds every trainable parameter's gradient and returns the gradient of the stage's input
  // (undefined when it was not marked, or has no rows). `grad_output` is undefined on the last
  // stage, because the head has made its gradient with the loss, and where there are no rows.
  // Layers before the first trainable one cost nothing here and have kept nothing.
  at::Tensor Backward(int id, const at::Tensor& grad_output);

  // Backward() in two halves (zero bubble, arXiv 2401.10241 section 2): the first returns the
  // gradient of the input as soon as it can, and leaves the gradients of linear layers' weights and
  // biases, with what they need, to the second. Norms and embeddings, which cost little, have
  // theirs in the first. REQUIRES: each of the two comes in ascending order of micro-batches.
  at::Tensor BackwardInput(int id, const at::Tensor& grad_output);
  void BackwardWeights(int id);

  // Counts the micro-batches in flight, those of the next step, from 0 on: `micro_batches` came
  // before them, and none of these is in flight. As for RunAhead (parallel/schedule/schedule.h).
  void EndStep(int micro_batches);
  // Forgets them.
  void DropInFlight();

  // Forward without gradients; the last stage gives the loss, or logits when the batch has no
  // targets.
  at::Tensor Evaluate(const MicroBatch& batch, const at::Tensor& input);

  // Called during Backward (or BackwardWeights) as soon as a layer's gradients of this micro-batch
  // are complete (none are missing where it had no rows), from the last layer to the first
  // trainable one; `index` is the layer's index in layers(). A tied head's weight is complete with
  // the embedding.
  std::function<void(int id, size_t index)> on_layer_backward;

  // Called around what a pass does with a layer: its forward, or what backward does of it (all but
  // what BackwardInput() leaves). Weights need be there in between alone.
  std::function<void(size_t index)> before_layer, after_layer;

  const std::vector<std::unique_ptr<Layer>>& layers() const { return layers_; }
  // The first layer that a backward reaches; all from there on, where the input's gradient is
  // wanted, from 0 on.
  size_t FirstBackward(bool input_gradient) const;
  // All parameters in the order of the layers; a tied head's weight appears once.
  std::vector<Parameter*> parameters() const;
  // Layers (halves, where one is made again) that keep something for a micro-batch in flight, over
  // all of them.
  size_t num_kept() const;
  // Bytes of activations in host memory, over all micro-batches in flight.
  int64_t offloaded_bytes() const;
  // Products left by BackwardInput, over all micro-batches.
  size_t num_deferred() const;

 private:
  struct InFlight;
  struct Kept;
  void AddPieces(size_t layer, std::vector<Kept>& kept) const;
  at::Tensor Run(const InFlight& pass, const Kept& kept);
  // `flow`: what goes on beside the layer, and stays where it is.
  at::Tensor RunAndOffload(const InFlight& pass, const Flow& flow, Kept& kept);
  at::Tensor ForwardPiece(const InFlight& pass, const at::Tensor& input, const Flow& flow,
                          Kept& kept);
  at::Tensor BackwardPiece(const InFlight& pass, Kept& kept, const at::Tensor& grad);
  // The features of a stage's input, and its rows in memory of their own where they are kept.
  Flow TakeInput(const MicroBatch& batch, const at::Tensor& input) const;
  void Before(size_t layer) const;
  void After(size_t layer) const;
  at::Tensor WalkBackwards(int id, const at::Tensor& grad_output,
                           const std::function<void(size_t layer)>& done);
  void SetDeferred(DeferredGradients* deferred) const;

  std::vector<std::unique_ptr<Layer>> layers_;
  std::map<int, std::unique_ptr<InFlight>> in_flight_;
  std::map<int, DeferredGradients> deferred_;    // by micro-batch
  std::weak_ptr<OffloadedActivations> leaving_;  // the last: their memory is not freed yet
};

}  // namespace equipoise
