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

namespace equipoise {

// A model on given tensors, under any plan. Rows are dealt to the data ranks in turn; every data
// rank runs the same number of micro-batches, empty ones where the rows have run out. All functions
// are collective; tensors and numbers that they give are those of the whole batch, on every rank.
class CheckRun {
 public:
  using Tensors = std::map<std::string, at::Tensor>;

  // `folder` is where the weights came from: results go by the keys of its files. `model` and
  // `world` must outlive it.
  // `recipe`: of the steps that RunSteps() will do, if any.
  CheckRun(const std::string& folder, CheckInputs inputs, ParallelModel& model, Communicator& world,
           std::optional<CheckRecipe> recipe);
  CheckRun(const CheckRun&) = delete;
  CheckRun& operator=(const CheckRun&) = delete;

  // [B, T, vocabulary] fp32; zeros where a position is masked.
  at::Tensor Logits();
  double Loss();
  // Leaves the gradients of the whole batch in the parameters.
  double LossAndGradients();
  // After LossAndGradients(): `grad.KEY` for each key of the folder's weights, zeros where the
  // model has no gradient. A tied head is the embedding and left out.
  void CollectGradients(Tensors& out);
  // Runs the optimizer: `losses` and `grad_norms` (before clipping) of each step [n] fp64, and the
  // weights afterwards, `after.KEY`.
  void RunSteps(Tensors& out);  // REQUIRES: a recipe

 private:
  // Adds this rank's share of the tensor of that name to `whole`.
  using Contribute = std::function<void(const std::string& name, at::Tensor& whole)>;
  ModelPart::Pass PassOver(const std::vector<MicroBatch>& batches) const;
  void Collect(const std::string& prefix, Tensors& out, const Contribute& contribute);
  std::string NameOf(const Parameter& parameter) const;
  double ReportedLoss();

  std::string folder_;
  CheckInputs inputs_;
  std::vector<MicroBatch> mine_;               // this data rank's
  std::vector<const CheckInputs::Row*> rows_;  // where they come from; null for an empty one
  ParallelModel& model_;
  std::optional<CheckRecipe> recipe_;
  std::unique_ptr<ZeroOptimizer> optimizer_;
  Communicator& world_;
};

}  // namespace equipoise
