#include "models/stages/model_part.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/modules.h"
#include "models/stages/boundary_rows.h"
#include "models/stages/model.h"
#include "parallel/comm/communicator.h"
#include "parallel/device.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/pipedream_2bw.h"

namespace equipoise {
namespace {

// The parameters of each layer. A tied weight comes first, alone: it is complete last, and
// gradients are reduced from the end; and all ranks that hold it cut it alike. In front of it lies
// a copy of an encoder, which not all of its ranks hold a tied weight beside (CopiedElements).
std::vector<std::vector<Parameter*>> Units(const std::map<int, std::unique_ptr<Stage>>& stages,
                                           const std::vector<Parameter*>& tied, const Plan& plan) {
  std::vector<std::vector<Parameter*>> copied, units;
  for (Parameter* parameter : tied) units.push_back({parameter});
  for (const auto& [number, stage] : stages) {
    const bool copy = plan.encoder_copies() > 1 && plan.ComponentOfStage(number).encoder;
    for (const std::unique_ptr<Layer>& layer : stage->layers()) {
      std::vector<Parameter*>& unit = (copy ? copied : units).emplace_back();
      for (Parameter* parameter : layer->parameters()) {
        if (std::find(tied.begin(), tied.end(), parameter) == tied.end()) unit.push_back(parameter);
      }
    }
  }
  copied.insert(copied.end(), units.begin(), units.end());
  return copied;
}

void AddOnce(std::vector<size_t>& units, size_t unit) {
  if (std::find(units.begin(), units.end(), unit) == units.end()) units.push_back(unit);
}

}  // namespace

ModelPart::ModelPart(const ModelConfig& config, StageLayout plan, int pipeline_rank,
                     const Options& options)
    : config_(config),
      plan_(std::move(plan)),
      dtype_(options.dtype),
      device_(options.device),
      encoder_stream_(options.encoder_stream && !options.device.is_cpu()),
      context_(options.tensor.context) {
  if (options.tensor.sequence) rows_group_ = options.tensor.group;
  CheckModules(config, options.freeze, "model.freeze");
  const std::vector<Recompute>& recompute = plan_.plan().recompute;
  EQUIPOISE_CHECK(recompute.empty() || recompute.size() == plan_.specs().size(), "recompute of ",
                  recompute.size(), " layers");
  for (const int number : plan_.plan().StagesOf(pipeline_rank, options.lane))
    stages_[number] = MakeStage(number, options);
  parameters_ = std::make_unique<FlatParameters>(Units(stages_, tied_copies(), plan_.plan()),
                                                 options.dtype, options.sharding, options.device);
  if (DelaysUpdates(plan_.plan().schedule) && !options.inference)
    versions_ = std::make_unique<WeightVersions>(*parameters_);
}

std::unique_ptr<Stage> ModelPart::MakeStage(int number, const Options& options) {
  const std::vector<Recompute>& recompute = plan_.plan().recompute;
  const LayerSpan span = plan_.plan().LayersOf(number);
  const bool in_lane = plan_.plan().LaneOf(number) >= 0;
  auto layers = BuildLayers(config_, {span.begin, span.end},
                            in_lane ? options.encoder_tensor : options.tensor);
  Freeze(layers, options.freeze);
  if (options.fp8) UseFp8(layers);
  for (size_t i = 0; i < layers.size(); ++i) {
    for (Parameter* p : layers[i]->parameters()) {
      p->trainable = p->trainable && !options.inference;
      p->part.owner = p->part.owner && plan_.plan().CopyOf(number) == 0;
    }
    partial_.insert(layers[i]->partial().begin(), layers[i]->partial().end());
    if (!recompute.empty()) layers[i]->recompute = recompute[static_cast<size_t>(span.begin) + i];
  }
  auto stage = std::make_unique<Stage>(std::move(layers));
  stage->before_layer = [this, made = stage.get()](size_t i) { BeforeLayer(*made->layers()[i]); };
  stage->after_layer = [this, made = stage.get()](size_t i) { AfterLayer(*made->layers()[i]); };
  stage->on_layer_backward = [this, number, made = stage.get()](int, size_t layer) {
    if (telling_ready_ == number && on_layer_ready)
      on_layer_ready(made->layers()[layer]->parameters());
    if (units == nullptr || !units->in_pass() || kind_ != OpKind::kWeightGradient) return;
    SumPartial(made->layers()[layer]->parameters());
    units->Acquire();
    units->Release();
  };
  return stage;
}

// What a pass of this kind needs of a layer, and completes.
ShardedUnits::Use ModelPart::UseOf(const Layer& layer, OpKind kind) const {
  ShardedUnits::Use use;
  for (const Parameter* parameter : layer.parameters()) {
    const size_t unit = parameters_->UnitOf(*parameter);
    if (parameters_->sharding().values() && kind != OpKind::kWeightGradient)
      AddOnce(use.values, unit);
    if (MakesWeightGradient(kind) && parameter->trainable) AddOnce(use.sums, unit);
  }
  for (const Parameter* parameter : layer.borrowed()) {
    if (!use.values.empty()) AddOnce(use.values, parameters_->UnitOf(*parameter));
  }
  return use;
}

// Those of a pass, in its order.
std::vector<ShardedUnits::Use> ModelPart::UsesOf(OpKind kind, int stage) const {
  const Stage& part = *stages_.at(stage);
  const auto& node = plan_.graph().stages[static_cast<size_t>(stage)];
  const auto& layers = part.layers();
  std::vector<ShardedUnits::Use> uses;
  if (IsForward(kind)) {
    for (const auto& layer : layers) uses.push_back(UseOf(*layer, kind));
  } else {
    const size_t first = part.FirstBackward(node.needs_input_gradient);
    for (size_t i = layers.size(); i-- > first;) uses.push_back(UseOf(*layers[i], kind));
  }
  return uses;
}

void ModelPart::BeginPass(OpKind kind, int stage) {
  kind_ = kind;
  units->Begin(UsesOf(kind, stage));
}

// How often the passes of a step sum each unit: each ends with a FREE.
std::map<size_t, int> ModelPart::SumsOf(const Schedule& schedule) const {
  std::map<size_t, int> sums;
  for (const std::vector<Op>& ops : schedule.ranks) {
    for (const Op& op : ops) {
      if (op.kind != OpKind::kFree || stages_.count(op.stage) == 0) continue;
      for (const ShardedUnits::Use& use : UsesOf(op.pass, op.stage))
        for (const size_t unit : use.sums) ++sums[unit];
    }
  }
  return sums;
}

// Where no GATHER has begun it, as values are whole anyway.
void ModelPart::BeginSums(OpKind kind, int stage) {
  const auto& node = plan_.graph().stages[static_cast<size_t>(stage)];
  if (units != nullptr && !units->in_pass() && node.needs_weight_gradient) BeginPass(kind, stage);
}

void ModelPart::Gather(const Op& op) { BeginPass(op.pass, op.stage); }

void ModelPart::Free(const Op& op) {
  BeginSums(op.pass, op.stage);  // a pass that has not run
  units->End();
}

void ModelPart::BeforeLayer(const Layer& layer) {
  if (!versions_ || versions_->shows_newest()) {
    parameters_->AwaitValues(layer.parameters());
    parameters_->AwaitValues(layer.borrowed());
  }
  if (units == nullptr) return;
  if (units->in_pass()) units->Acquire();
  // The head adds gradients in its forward.
  if (goes_backwards_ || (!pass_.evaluate && !layer.can_recompute())) ShowGradients(layer);
}

void ModelPart::AfterLayer(const Layer& layer) {
  if (units == nullptr || !units->in_pass()) return;
  if (goes_backwards_ && MakesWeightGradient(kind_)) SumPartial(layer.parameters());
  units->Release();
}

// One sum for all of them.
void ModelPart::SumPartial(const std::vector<Parameter*>& parameters) {
  std::vector<at::Tensor> gradients, flat;
  for (const Parameter* parameter : parameters) {
    if (!parameter->trainable || partial_.count(parameter) == 0) continue;
    gradients.push_back(parameter->gradient);
    flat.push_back(parameter->gradient.reshape({-1}));
  }
  if (flat.empty()) return;
  at::Tensor sum = at::cat(flat);
  rows_group_->AllReduce(sum, ReduceOp::kSum).WaitOnStream();
  int64_t begin = 0;
  for (at::Tensor& gradient : gradients) {
    gradient.copy_(sum.narrow(0, begin, gradient.numel()).view(gradient.sizes()));
    begin += gradient.numel();
  }
}

void ModelPart::ShowGradients(const Layer& layer) {
  for (const auto* parameters : {&layer.parameters(), &layer.borrowed()}) {
    for (const Parameter* parameter : *parameters) {
      if (parameter->trainable) units->ShowGradients(parameters_->UnitOf(*parameter));
    }
  }
}

std::vector<Parameter*> ModelPart::tied_copies() const {
  const std::string& tied = plan_.specs().back().tied.name;
  if (tied.empty()) return {};
  std::vector<Parameter*> copies;
  for (const auto& [number, stage] : stages_) {
    const bool last = number + 1 == plan_.plan().num_stages();
    const std::vector<Parameter*> parameters = stage->parameters();
    for (Parameter* parameter : parameters) {
      if (parameter->name != tied) continue;
      // Both ends in one stage share the weight.
      if (!last || !parameter->part.owner) copies.push_back(parameter);
    }
  }
  return copies;
}

std::vector<Parameter*> ModelPart::encoder_copy() const {
  std::vector<Parameter*> copy;
  if (plan_.plan().encoder_copies() == 1) return copy;
  for (const auto& [number, stage] : stages_) {
    if (!plan_.plan().ComponentOfStage(number).encoder) continue;
    for (Parameter* parameter : stage->parameters()) {
      if (parameter->trainable) copy.push_back(parameter);
    }
  }
  return copy;
}

void ModelPart::Begin(Pass pass) {
  pass_ = std::move(pass);
  // Passes ahead of the next step outlive an evaluation in between.
  Ahead before = pass_.evaluate ? Ahead() : std::exchange(ahead_, {});
  loss_ = std::move(before.loss);
  moved_ = std::move(before.moved);
  settled_ = std::move(before.settled);
  // A wait holds up the stream that asks for it alone, and both read what arrives together.
  if (encoder_stream_) parameters_->AwaitValues();
  if (!pass_.evaluate) {
    EQUIPOISE_CHECK(features_.empty(), "features that no op has taken");
    features_ = std::exchange(next_features_, {});
    if (units != nullptr) units->Expect(SumsOf(*pass_.schedule));
    if (versions_) versions_->BeginStep(ParametersOfNextStep());
  }
  last_use_.assign(pass_.loads.size() + pass_.next_loads.size(), {});
  const auto is_here = [this](const Op& op) {
    return IsCompute(op.kind) && op.kind != OpKind::kWeightGradient && stages_.count(op.stage) > 0;
  };
  for (const std::vector<Op>& ops : pass_.schedule->ranks) {
    for (const Op& op : ops) {
      if (is_here(op)) {
        last_use_[static_cast<size_t>(op.micro_batch)] = {op.stage, IsForward(op.kind)};
      }
    }
  }
}

void ModelPart::EndStep() {
  if (!versions_) return;
  versions_->EndStep();
  const int own = pass_.schedule->own();
  for (const auto& [number, stage] : stages_) stage->EndStep(own);
  // In place: stages keep where they lie.
  while (!moved_.empty()) {
    auto node = moved_.extract(moved_.begin());
    if (!IsAhead(node.key().first)) continue;
    node.key().first -= own;
    ahead_.moved.insert(std::move(node));
  }
  for (const int micro_batch : settled_) {
    if (IsAhead(micro_batch)) ahead_.settled.insert(micro_batch - own);
  }
}

void ModelPart::DropAhead() {
  features_.clear();
  next_features_.clear();
  ahead_ = {};
  for (const auto& [number, stage] : stages_) stage->DropInFlight();
  if (versions_) versions_->Drop();
}

// Of the next step, whose passes run here.
bool ModelPart::IsAhead(int micro_batch) const {
  return versions_ && !pass_.evaluate && micro_batch >= pass_.schedule->own();
}

// The parameters that passes ahead add gradients to: all of a stage with backwards among them; else
// those of the head, which makes its gradient with the loss.
std::vector<const Parameter*> ModelPart::ParametersOfNextStep() const {
  std::vector<const Parameter*> made;
  for (const auto& [number, stage] : stages_) {
    const NextGradients next = NextGradientsOf(plan_.graph(), pass_.schedule->ahead.after, number);
    for (const std::unique_ptr<Layer>& layer : stage->layers()) {
      const bool head = next == NextGradients::kOfHead && !layer->can_recompute();
      if (!head && next != NextGradients::kAll) continue;
      made.insert(made.end(), layer->parameters().begin(), layer->parameters().end());
    }
  }
  return made;
}

void ModelPart::ShowWeightsFor(int micro_batch) {
  if (!versions_ || pass_.evaluate) return;
  if (IsAhead(micro_batch)) {
    versions_->ShowNextStep();
  } else {
    versions_->ShowThisStep();
  }
}

const LayerLoad& ModelPart::LoadOf(int micro_batch) const {
  const auto number = static_cast<size_t>(micro_batch);
  const size_t now = pass_.loads.size();
  return number < now ? pass_.loads[number] : pass_.next_loads[number - now];
}

// Undefined where the step before has made none.
at::Tensor ModelPart::TakeFeatures(int stage, int micro_batch) {
  const auto found = features_.find({stage, micro_batch});
  if (pass_.evaluate || found == features_.end()) return {};
  const Features features = std::move(found->second);
  features_.erase(found);
  EQUIPOISE_CHECK(features.samples == pass_.batch(micro_batch).samples,
                  "features of other samples than those of micro-batch ", micro_batch);
  return features.rows;
}

// What an encoder's last stage makes of the next step's micro-batches goes nowhere in this one.
void ModelPart::KeepIfAhead(int stage, int micro_batch, const at::Tensor& result) {
  const auto now = static_cast<int>(pass_.loads.size());
  if (micro_batch < now || IsAhead(micro_batch) || pass_.schedule->work.Sends(stage, micro_batch))
    return;
  next_features_[{stage, micro_batch - now}] = {result, pass_.batch(micro_batch).samples};
}

// Ranks of other lanes do not run the ops of a lane: what these read of the micro-batch has one
// shape whether it is settled or not.
bool ModelPart::Settle(int stage, int micro_batch) {
  if (!pass_.settle || plan_.plan().LaneOf(stage) >= 0) return false;
  return settled_.insert(micro_batch).second && pass_.settle(micro_batch);
}

const MicroBatch& ModelPart::Batch(int stage, int micro_batch) {
  const MicroBatch& batch = pass_.batch(micro_batch);
  const bool changed = Settle(stage, micro_batch);
  const bool beside = encoder_stream_ && plan_.plan().ComponentOfStage(stage).encoder;
  const bool pixels = takes_pixels() && beside == encoder_stream_;
  const bool bytes = pixels && batch.tiles() > 0 && batch.pixel_values.scalar_type() == at::kByte;
  if (device_.is_cpu() && !bytes && context_.size == 1) return batch;
  const auto found = moved_.find({micro_batch, beside});
  if (found != moved_.end() && !changed) return found->second;
  MicroBatch moved = batch;
  if (context_.size > 1 && pixels)
    moved = ForContextRank(std::move(moved), ImageSpecOf(config_), context_);
  moved = OnDevice(std::move(moved), device_);
  if (pixels) moved.pixel_values = ToDevice(moved.pixel_values, device_);
  if (bytes) {
    if (!pixel_scale_) pixel_scale_.emplace(ImageSpecOf(config_), device_);
    moved.pixel_values = (*pixel_scale_)(moved.pixel_values);
  }
  // In place: a stage of a lane may still read there.
  return moved_[{micro_batch, beside}] = std::move(moved);
}

void ModelPart::ReleaseAfter(int stage, int micro_batch, bool forward) {
  if (IsAhead(micro_batch) && plan_.graph().HasBackward(stage)) return;
  const LastUse& last = last_use_[static_cast<size_t>(micro_batch)];
  if (last.stage != stage || last.forward != forward) return;
  for (const bool beside : {false, true}) moved_.erase({micro_batch, beside});
  if (pass_.release) pass_.release(micro_batch);
}

at::Tensor ModelPart::Forward(int stage, int micro_batch, const std::vector<at::Tensor>& inputs) {
  goes_backwards_ = false;
  ShowWeightsFor(micro_batch);
  if (const at::Tensor taken = TakeFeatures(stage, micro_batch); taken.defined()) {
    ReleaseAfter(stage, micro_batch, /*forward=*/true);
    return taken;
  }
  const MicroBatch& batch = Batch(stage, micro_batch);
  Stage& part = *stages_.at(stage);
  const at::Tensor input = JoinRows(inputs);
  at::Tensor result;
  if (pass_.evaluate) {
    result = part.Evaluate(batch, input);
  } else {
    at::Tensor marked = input.defined() ? input.detach() : input;
    const auto& node = plan_.graph().stages[static_cast<size_t>(stage)];
    if (marked.defined() && node.needs_input_gradient) marked.set_requires_grad(true);
    const double scale = IsAhead(micro_batch) ? pass_.next_loss_scale : pass_.loss_scale;
    result = part.Forward(micro_batch, batch, marked, scale);
  }
  const bool has_result = stage + 1 == plan_.plan().num_stages();
  if (has_result && pass_.on_result) pass_.on_result(micro_batch, result);
  if (has_result && result.defined() && result.dim() == 0) {
    const at::Tensor loss = result.detach();
    at::Tensor& sum = IsAhead(micro_batch) ? ahead_.loss : loss_;
    sum = sum.defined() ? at::add(sum, loss) : loss;
  }
  KeepIfAhead(stage, micro_batch, result);
  ReleaseAfter(stage, micro_batch, /*forward=*/true);
  return has_result ? at::Tensor() : result;
}

std::vector<at::Tensor> ModelPart::Backward(int stage, int micro_batch, const at::Tensor& gradient,
                                            bool last) {
  telling_ready_ = last ? stage : -1;
  goes_backwards_ = true;
  ShowWeightsFor(micro_batch);
  BeginSums(OpKind::kBackward, stage);
  at::Tensor input = stages_.at(stage)->Backward(micro_batch, gradient);
  telling_ready_ = -1;
  return InputGradients(stage, micro_batch, std::move(input));
}

std::vector<at::Tensor> ModelPart::BackwardInput(int stage, int micro_batch,
                                                 const at::Tensor& gradient) {
  // No second half follows where every weight is frozen.
  if (!plan_.graph().stages[static_cast<size_t>(stage)].needs_weight_gradient) {
    return Backward(stage, micro_batch, gradient, /*last=*/false);
  }
  goes_backwards_ = true;
  return InputGradients(stage, micro_batch,
                        stages_.at(stage)->BackwardInput(micro_batch, gradient));
}

void ModelPart::BackwardWeights(int stage, int micro_batch, bool last) {
  telling_ready_ = last ? stage : -1;
  BeginSums(OpKind::kWeightGradient, stage);
  if (units != nullptr) {
    for (const auto& layer : stages_.at(stage)->layers()) ShowGradients(*layer);
  }
  stages_.at(stage)->BackwardWeights(micro_batch);
  telling_ready_ = -1;
}

// `input`: the gradient of the stage's input, undefined where nothing has flowed back.
std::vector<at::Tensor> ModelPart::InputGradients(int stage, int micro_batch, at::Tensor input) {
  ReleaseAfter(stage, micro_batch, /*forward=*/false);
  const LayerLoad& load = LoadOf(micro_batch);
  std::vector<std::vector<int64_t>> shapes;
  for (const int from : plan_.graph().Previous(stage)) {
    if (pass_.schedule->work.Sends(from, micro_batch))
      shapes.push_back(plan_.BoundaryShape(from, load));
  }
  // Tokens without a target: nothing flows back, and the stages before wait for it.
  if (!input.defined()) {
    std::vector<at::Tensor> zeros;
    zeros.reserve(shapes.size());
    for (const auto& shape : shapes) zeros.push_back(at::zeros(shape, ActivationOptions()));
    return zeros;
  }
  return SplitRows(input, shapes);
}

at::Tensor ModelPart::EmptyBoundary(int from, int micro_batch) {
  return at::empty(plan_.BoundaryShape(from, LoadOf(micro_batch)), ActivationOptions());
}

void ModelPart::Reduce(int stage) {
  if (pass_.evaluate) return;
  if (versions_) versions_->ShowThisStep();
  if (on_stage_ready) on_stage_ready(stages_.at(stage)->parameters());
}

void ModelPart::FinishReduction() {
  if (pass_.evaluate) return;
  if (versions_) versions_->ShowThisStep();
  if (on_all_ready) on_all_ready();
}

}  // namespace equipoise
