#include "trainer/check/check_run.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <set>
#include <utility>

#include "models/families/adapters.h"
#include "models/families/families.h"
#include "models/spec/sliding_window.h"
#include "models/spec/weight_names.h"
#include "models/weights/gptq_folder.h"
#include "models/weights/safetensors.h"
#include "models/weights/weights.h"
#include "parallel/comm/values.h"
#include "parallel/zero/grad_norm.h"
#include "parallel/zero/zero_optimizer.h"
#include "trainer/check/whole_tensors.h"

// Results are collected one weight at a time: every rank adds its part to a tensor of zeros, and an
// all-reduce yields the whole, so that memory is bounded by the largest weight besides the results.

namespace equipoise {
namespace {

MicroBatch EmptyBatch(bool has_labels) {
  MicroBatch batch;
  batch.input_ids = at::zeros({0}, at::kLong);
  batch.position_ids = at::zeros({0}, at::kLong);
  if (has_labels) batch.targets = at::zeros({0}, at::kLong);
  batch.cu_seqlens = {0};
  return batch;
}

}  // namespace

CheckRun::CheckRun(const std::string& folder, CheckInputs inputs, ParallelModel& model,
                   Communicator& world, std::optional<CheckRecipe> recipe)
    : folder_(folder),
      inputs_(std::move(inputs)),
      model_(model),
      recipe_(std::move(recipe)),
      world_(world) {
  for (const CheckInputs::Row& row : inputs_.rows) {
    const std::vector<int64_t>& ends = row.batch.cu_seqlens;
    for (size_t s = 0; s + 1 < ends.size(); ++s) {
      RequireWithinWindow(model_.part().config().text, ends[s + 1] - ends[s], "a row's sequence");
    }
  }
  if (recipe_) {
    const std::vector<Parameter*>& parameters = model_.parameters().parameters();
    optimizer_ =
        std::make_unique<ZeroOptimizer>(model_.parameters(), RecipeGroups(*recipe_, parameters),
                                        recipe_->adamw, model_.shards(), model_.optimizer_groups());
    optimizer_->TakeMasters();  // before the gradients overwrite that memory
  }
  const auto ranks = static_cast<size_t>(model.plan().data());
  const auto rank = static_cast<size_t>(model.groups().at.data);
  for (size_t first = 0; first < inputs_.rows.size(); first += ranks) {
    const size_t row = first + rank;
    const bool has_row = row < inputs_.rows.size();
    rows_.push_back(has_row ? &inputs_.rows[row] : nullptr);
    batches_.push_back(has_row ? inputs_.rows[row].batch : EmptyBatch(inputs_.has_labels));
  }
}

ModelPart::Pass CheckRun::PassOver(const std::vector<MicroBatch>& batches) const {
  ModelPart::Pass pass;
  pass.batch = [&batches](int i) -> const MicroBatch& { return batches[static_cast<size_t>(i)]; };
  const ImageSpec images = ImageSpecOf(model_.part().config());
  for (const MicroBatch& batch : batches) {
    pass.loads.push_back(SingleSegment(PicturesOf(batch, images), batch.tokens()));
  }
  return pass;
}

at::Tensor CheckRun::Logits() {
  const auto count = static_cast<int64_t>(inputs_.rows.size());
  const int64_t vocabulary = model_.part().config().text.vocab_size;
  at::Tensor logits = at::zeros({count, inputs_.columns, vocabulary}, at::kFloat);
  std::vector<MicroBatch> batches = batches_;
  for (MicroBatch& batch : batches) batch.targets = at::Tensor();
  ModelPart::Pass pass = PassOver(batches);
  pass.on_result = [&](int i, const at::Tensor& result) {
    const auto index = static_cast<size_t>(i);
    if (batches[index].tokens() == 0 || !model_.reports_batches()) return;
    at::Tensor place = logits.select(0, batches[index].samples[0]);
    place.narrow(0, rows_[index]->first_column, batches[index].tokens()).copy_(result);
  };
  model_.Evaluate(std::move(pass));
  world_.AllReduce(logits, ReduceOp::kSum).Wait();
  return logits;
}

double CheckRun::Loss() {
  model_.Evaluate(PassOver(batches_));
  return ReportedLoss() / inputs_.total_weight;
}

double CheckRun::LossAndGradients() {
  for (;;) {
    const double scale = scaler_.scale();
    ModelPart::Pass pass = PassOver(batches_);
    pass.loss_scale = scale / inputs_.total_weight;
    model_.RunStep(std::move(pass));
    const double loss = ReportedLoss() / scale;
    if (!scaler_.on()) return loss;
    at::Tensor& gradient = model_.parameters().gradient();
    const bool overflows = AnyRank(world_, !at::isfinite(gradient).all().item<bool>());
    if (!overflows || !scaler_.CanLower()) {
      gradient.mul_(1 / scale);
      return loss;
    }
    scaler_.Lower();
  }
}

void CheckRun::CollectGradients(Tensors& out) {
  const std::vector<Parameter*>& parameters = model_.parameters().parameters();
  std::map<std::string, std::vector<size_t>> by_name;
  for (size_t i = 0; i < parameters.size(); ++i) by_name[NameOf(*parameters[i])].push_back(i);
  Collect("grad.", out, [&](const std::string& name, at::Tensor& whole) {
    for (const size_t i : by_name[name]) AddGradient(model_, i, whole);
  });
}

void CheckRun::RunSteps(Tensors& out) {
  std::vector<double> losses, norms;
  for (const double lr : recipe_->lrs) {
    losses.push_back(LossAndGradients());
    norms.push_back(optimizer_->GradientNorm());
    optimizer_->Step(lr, ClipFactor(norms.back(), recipe_->clip));
  }
  out["losses"] = at::tensor(losses, at::kDouble);
  out["grad_norms"] = at::tensor(norms, at::kDouble);
  std::map<std::string, ZeroOptimizer::State> states;
  for (ZeroOptimizer::State& state : optimizer_->ToSave()) {
    if (state.name != state.parameter->name) continue;
    states.insert_or_assign(NameOf(*state.parameter), std::move(state));
  }
  Collect("after.", out, [&](const std::string& name, at::Tensor& whole) {
    if (states.count(name) > 0) AddState(states.at(name), whole);
  });
}

std::string CheckRun::NameOf(const Parameter& parameter) const {
  return WeightNamesOf(model_.part().config()).Canonical(parameter.name);
}

void CheckRun::Collect(const std::string& prefix, Tensors& out, const Contribute& contribute) {
  const ModelConfig& config = model_.part().config();
  const SafetensorsFolder files(folder_);
  const WeightNames weight_names = WeightNamesOf(config);
  const LayerSpec& last = model_.part().plan().specs().back();
  std::set<std::string> base;
  for (const LayerSpec& spec : model_.part().plan().specs()) {
    for (const TensorSpec& tensor : spec.parameters) {
      if (tensor.role == ParameterRole::kBase) base.insert(tensor.name);
    }
  }
  for (const std::string& key : files.names()) {
    std::vector<std::pair<FusedRows, at::Tensor>> parts;
    for (const WeightNames::Held& held : weight_names.Ours(key)) {
      if (held.name == last.name + ".weight" && !last.tied.name.empty()) continue;
      if (base.count(GptqWeightName(held.name)) > 0) continue;
      std::vector<int64_t> shape = files.FileOf(key).entries().at(key).shape;
      if (!held.rows.whole()) shape[0] = shape[0] / held.rows.period * held.rows.count;
      at::Tensor whole = at::zeros(shape, at::kFloat);
      contribute(held.name, whole);
      world_.AllReduce(whole, ReduceOp::kSum).Wait();
      parts.emplace_back(held.rows, std::move(whole));
    }
    if (parts.empty()) continue;
    out[prefix + key] = parts[0].first.whole() ? parts[0].second : FuseRows(parts);
  }
  for (const LayerSpec& spec : model_.part().plan().specs()) {
    for (const TensorSpec& tensor : spec.parameters) {
      if (tensor.role != ParameterRole::kAdapter) continue;
      at::Tensor whole = at::zeros(tensor.shape, at::kFloat);
      contribute(tensor.name, whole);
      world_.AllReduce(whole, ReduceOp::kSum).Wait();
      out[prefix + PeftName(config, tensor.name)] = whole;
    }
  }
}

double CheckRun::ReportedLoss() {
  const double local = model_.reports_loss() ? model_.part().loss() : 0;
  return AllReduceValue(world_, local, ReduceOp::kSum);
}

}  // namespace equipoise
