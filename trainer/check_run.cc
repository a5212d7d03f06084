#include "trainer/check_run.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "models/safetensors.h"
#include "models/weight_map.h"
#include "parallel/zero/adamw.h"
#include "parallel/zero/grad_norm.h"

namespace equipoise {
namespace {

double Value(const at::Tensor& loss) { return loss.defined() ? loss.item<double>() : 0.0; }

}  // namespace

CheckRun::CheckRun(const std::string& folder, CheckInputs inputs, LoadedModel model,
                   Communicator& world)
    : folder_(folder), inputs_(std::move(inputs)), model_(std::move(model)), world_(world) {
  empty_.batch.input_ids = at::zeros({0}, at::kLong);
  empty_.batch.position_ids = at::zeros({0}, at::kLong);
  if (inputs_.has_labels) empty_.batch.targets = at::zeros({0}, at::kLong);
  empty_.batch.cu_seqlens = {0};
  const auto ranks = static_cast<size_t>(world.size()), rank = static_cast<size_t>(world.rank());
  for (size_t first = 0; first < inputs_.rows.size(); first += ranks) {
    const size_t row = first + rank;
    mine_.push_back(row < inputs_.rows.size() ? &inputs_.rows[row] : &empty_);
  }
}

at::Tensor CheckRun::Logits() {
  const auto rows = static_cast<int64_t>(inputs_.rows.size());
  at::Tensor logits = at::zeros({rows, inputs_.columns, model_.config.text.vocab_size}, at::kFloat);
  for (const CheckInputs::Row* row : mine_) {
    MicroBatch batch = row->batch;
    batch.targets = at::Tensor();
    const at::Tensor result = model_.stage->Evaluate(batch, at::Tensor());
    if (batch.tokens() == 0) continue;
    at::Tensor place = logits.select(0, batch.samples[0]);
    place.narrow(0, row->first_column, batch.tokens()).copy_(result);
  }
  world_.AllReduce(logits, ReduceOp::kSum).Wait();
  return logits;
}

double CheckRun::Loss() {
  double loss = 0;
  for (const CheckInputs::Row* row : mine_) {
    loss += Value(model_.stage->Evaluate(row->batch, at::Tensor())) / inputs_.total_weight;
  }
  return SumOverRanks(loss);
}

double CheckRun::LossAndGradients() {
  model_.parameters->ZeroGradient();
  double loss = 0;
  for (size_t i = 0; i < mine_.size(); ++i) {
    const int id = static_cast<int>(i);
    const double scale = 1.0 / inputs_.total_weight;
    loss += Value(model_.stage->Forward(id, mine_[i]->batch, at::Tensor(), scale));
    model_.stage->Backward(id, at::Tensor());
  }
  world_.AllReduce(model_.parameters->gradient(), ReduceOp::kSum).Wait();
  return SumOverRanks(loss);
}

void CheckRun::CollectGradients(Tensors& out) {
  Collect(
      "grad.", [](const Parameter& parameter) { return parameter.gradient; }, out);
}

void CheckRun::RunSteps(const CheckRecipe& recipe, Tensors& out) {
  const std::vector<Parameter*>& parameters = model_.parameters->parameters();
  AdamW adamw(*model_.parameters, RecipeGroups(recipe, parameters), recipe.adamw);
  std::vector<double> losses, norms;
  for (const double lr : recipe.lrs) {
    losses.push_back(LossAndGradients());
    norms.push_back(GradientNorm(parameters));
    const double clip = ClipFactor(norms.back(), recipe.clip);
    if (clip != 1.0) model_.parameters->gradient().mul_(clip);
    adamw.Step(lr);
    model_.parameters->UpdateCompute();
  }
  out["losses"] = at::tensor(losses, at::kDouble);
  out["grad_norms"] = at::tensor(norms, at::kDouble);
  Collect(
      "after.", [](const Parameter& parameter) { return parameter.master; }, out);
}

void CheckRun::Collect(const std::string& prefix, const ValueOf& value_of, Tensors& out) {
  const bool has_vision = model_.config.has_vision;
  std::map<std::string, const Parameter*> by_name;
  for (const Parameter* parameter : model_.parameters->parameters()) {
    by_name[CanonicalWeightName(parameter->name, has_vision)] = parameter;
  }
  const SafetensorsFolder files(folder_);
  const std::string head = has_vision ? "language_model.lm_head.weight" : "lm_head.weight";
  for (const std::string& key : files.names()) {
    const std::vector<std::string> names = CanonicalWeightNames(key, has_vision);
    std::vector<int64_t> shape = files.FileOf(key).entries().at(key).shape;
    if (names.size() > 1) shape[0] /= static_cast<int64_t>(names.size());  // of a part
    std::vector<at::Tensor> parts;
    for (const std::string& name : names) {
      const auto found = by_name.find(name);
      if (found == by_name.end() && name == head) continue;
      const at::Tensor tensor = found == by_name.end() ? at::Tensor() : value_of(*found->second);
      parts.push_back(tensor.defined() ? tensor : at::zeros(shape, at::kFloat));
    }
    if (parts.empty()) continue;
    out[prefix + key] = parts.size() == 1 ? parts[0] : at::cat(parts);
  }
}

double CheckRun::SumOverRanks(double value) {
  at::Tensor sum = at::scalar_tensor(value, at::kDouble);
  world_.AllReduce(sum, ReduceOp::kSum).Wait();
  return sum.item<double>();
}

}  // namespace equipoise
