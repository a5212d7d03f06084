#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "trainer/check_inputs.h"
#include "trainer/check_recipe.h"
#include "trainer/loaded_model.h"

namespace equipoise {

// A model on given tensors. Rows are dealt to the ranks in turn; every rank runs the same number of
// micro-batches, empty ones where the rows have run out. All functions are collective; tensors and
// numbers that they give are those of the whole batch, on every rank.
class CheckRun {
 public:
  using Tensors = std::map<std::string, at::Tensor>;

  // `folder` is where the weights came from: results go by the keys of its files.
  CheckRun(const std::string& folder, CheckInputs inputs, LoadedModel model, Communicator& world);
  CheckRun(const CheckRun&) = delete;
  CheckRun& operator=(const CheckRun&) = delete;

  // [B, T, vocabulary] fp32; zeros where a position is masked.
  at::Tensor Logits();
  double Loss();
  // Leaves the gradients of the whole batch in the parameters.
  double LossAndGradients();
  // After LossAndGradients(): `grad.KEY` for each key of the folder's weights, zeros where the
  // model has no gradient. Views of the gradients where a key is one weight. A tied head is the
  // embedding and left out.
  void CollectGradients(Tensors& out);
  // Runs the optimizer: `losses` and `grad_norms` (before clipping) of each step [n] fp64, and the
  // weights afterwards, `after.KEY`.
  void RunSteps(const CheckRecipe& recipe, Tensors& out);

 private:
  using ValueOf = std::function<at::Tensor(const Parameter&)>;
  void Collect(const std::string& prefix, const ValueOf& value_of, Tensors& out);
  double SumOverRanks(double value);

  std::string folder_;
  CheckInputs inputs_;
  CheckInputs::Row empty_;
  std::vector<const CheckInputs::Row*> mine_;  // this rank's
  LoadedModel model_;
  Communicator& world_;
};

}  // namespace equipoise
