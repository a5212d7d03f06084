#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/stages/model_part.h"
#include "parallel/comm/communicator.h"
#include "parallel/zero/zero_optimizer.h"
#include "trainer/check/check_inputs.h"
#include "trainer/check/check_recipe.h"
#include "trainer/run/parallel_model.h"
#include "trainer/settings/loss_scaler.h"

namespace equipoise {

// Runs a model on given tensors, under any plan. Rows are distributed round-robin over the
// data-parallel ranks, all of which run the same number of micro-batches; the last may be empty.
// All functions are collective and return the results of the whole batch on every rank.
class CheckRun {
 public:
  using Tensors = std::map<std::string, at::Tensor>;

  // `folder` is the Hugging Face folder of the weights, whose keys name the results. `recipe` is
  // needed for RunSteps() only. `model` and `world` must outlive this object.
  CheckRun(const std::string& folder, CheckInputs inputs, ParallelModel& model, Communicator& world,
           std::optional<CheckRecipe> recipe);
  CheckRun(const CheckRun&) = delete;
  CheckRun& operator=(const CheckRun&) = delete;

  // From now on gradients are computed with a scale of the loss, and divided by it; where they
  // overflow, again with a smaller one.
  void ScaleLoss(const LossScaler& scaler) { scaler_ = scaler; }

  // Logits [B, T, vocabulary] fp32; zeros at masked positions.
  at::Tensor Logits();
  // The sum of weighted token losses over CheckInputs::total_weight. Collective.
  double Loss();
  // The loss; the gradients of the whole batch are left in the parameters.
  double LossAndGradients();
  // Adds, after LossAndGradients(), `grad.KEY` for each key of the folder's weights, and of
  // adapters in a file of PEFT (not of the base under them); zeros where the model has no gradient.
  // A tied output head is left out, as it is the embedding.
  void CollectGradients(Tensors& out);
  // Runs the optimizer steps and adds `losses` and `grad_norms` (before clipping), [steps] fp64,
  // and the updated weights `after.KEY`.
  void RunSteps(Tensors& out);  // REQUIRES: a recipe

 private:
  // Adds this rank's part of the tensor of that name to `whole`.
  using Contribute = std::function<void(const std::string& name, at::Tensor& whole)>;
  ModelPart::Pass PassOver(const std::vector<MicroBatch>& batches) const;
  void Collect(const std::string& prefix, Tensors& out, const Contribute& contribute);
  std::string NameOf(const Parameter& parameter) const;
  double ReportedLoss();

  std::string folder_;
  CheckInputs inputs_;
  std::vector<MicroBatch> batches_;            // micro-batches of this data-parallel rank
  std::vector<const CheckInputs::Row*> rows_;  // row of each; null for an empty micro-batch
  ParallelModel& model_;
  std::optional<CheckRecipe> recipe_;
  std::unique_ptr<ZeroOptimizer> optimizer_;
  LossScaler scaler_;
  Communicator& world_;
};

}  // namespace equipoise
