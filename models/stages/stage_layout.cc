#include "models/stages/stage_layout.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/modules.h"

namespace equipoise {
namespace {

constexpr double kFlopsPerSecond = 1e12;

}  // namespace

StageLayout::StageLayout(const ModelConfig& config, const Plan& plan,
                         const std::vector<std::string>& frozen)
    : plan_(plan), specs_(LayerSpecs(config)) {
  const std::vector<int>& begins = plan.stage_begins;
  EQUIPOISE_CHECK(static_cast<int>(begins.size()) == plan.num_stages() + 1 && begins.front() == 0 &&
                      begins.back() == static_cast<int>(specs_.size()),
                  "stages that do not cover the layers");
  EQUIPOISE_CHECK(plan.encoder_ranks == 0 ||
                      begins[static_cast<size_t>(plan.encoder_ranks)] == NumEncoderLayers(specs_),
                  "the encoder's stages do not end with it");
  std::vector<int> ranks;
  ranks.reserve(static_cast<size_t>(plan.num_stages()));
  for (int s = 0; s < plan.num_stages(); ++s) ranks.push_back(plan.RankOfStage(s));
  graph_ = ChainGraph(ranks);
  bool trainable_before = false;
  for (int s = 0; s < plan.num_stages(); ++s) {
    StageNode& node = graph_.stages[static_cast<size_t>(s)];
    node.encoder = s < plan.encoder_ranks;
    node.needs_input_gradient = trainable_before;
    node.needs_weight_gradient = false;
    for (int i = begins[static_cast<size_t>(s)]; i < begins[static_cast<size_t>(s) + 1]; ++i) {
      if (!IsAmong(specs_[static_cast<size_t>(i)], frozen)) node.needs_weight_gradient = true;
    }
    trainable_before = trainable_before || node.needs_weight_gradient;
  }
}

const LayerSpec& StageLayout::LastLayer(int stage) const {
  return specs_[static_cast<size_t>(plan_.stage_begins[static_cast<size_t>(stage) + 1] - 1)];
}

bool StageLayout::Runs(int stage, const LayerLoad& load) const {
  const auto first = static_cast<size_t>(plan_.stage_begins[static_cast<size_t>(stage)]);
  // Vision comes before text: the stage's first and last layer tell.
  return specs_[first].Runs(load) || LastLayer(stage).Runs(load);
}

bool StageLayout::Sends(int stage, const LayerLoad& load) const {
  return stage + 1 < plan_.num_stages() && LastLayer(stage).Runs(load);
}

StepWork StageLayout::Work(const std::vector<LayerLoad>& micro_batches) const {
  StepWork work;
  for (int s = 0; s < plan_.num_stages(); ++s) {
    std::vector<bool> runs, sends;
    for (const LayerLoad& load : micro_batches) {
      runs.push_back(Runs(s, load));
      sends.push_back(Sends(s, load));
    }
    work.runs.push_back(std::move(runs));
    work.sends.push_back(std::move(sends));
  }
  return work;
}

SimulationCosts StageLayout::Costs(const std::vector<LayerLoad>& micro_batches,
                                   int64_t element_bytes) const {
  // [stage][micro-batch], summed over layers once: a step asks for each of them several times.
  struct Cost {
    double forward_s = 0, backward_s = 0, boundary_bytes = 0, kept_bytes = 0;
  };
  std::vector<std::vector<Cost>> table(static_cast<size_t>(plan_.num_stages()));
  for (int s = 0; s < plan_.num_stages(); ++s) {
    for (const LayerLoad& load : micro_batches) {
      Cost& cost = table[static_cast<size_t>(s)].emplace_back();
      for (int i = plan_.stage_begins[static_cast<size_t>(s)];
           i < plan_.stage_begins[static_cast<size_t>(s) + 1]; ++i) {
        const LayerSpec& spec = specs_[static_cast<size_t>(i)];
        cost.forward_s += spec.ForwardFlops(load) / kFlopsPerSecond;
        cost.backward_s += spec.BackwardFlops(load) / kFlopsPerSecond;
        cost.kept_bytes += static_cast<double>(spec.SavedBytes(load, element_bytes));
      }
      cost.boundary_bytes = static_cast<double>(LastLayer(s).BoundaryBytes(load, element_bytes));
    }
  }
  const auto shared = std::make_shared<const std::vector<std::vector<Cost>>>(std::move(table));
  const auto at = [shared](int stage, int micro_batch) -> const Cost& {
    return (*shared)[static_cast<size_t>(stage)][static_cast<size_t>(micro_batch)];
  };
  SimulationCosts costs;
  costs.seconds = [at](const Op& op) {
    if (!IsCompute(op.kind)) return 0.0;
    const Cost& cost = at(op.stage, op.micro_batch);
    if (IsForward(op.kind)) return cost.forward_s;
    const bool half = op.kind == OpKind::kInputGradient || op.kind == OpKind::kWeightGradient;
    return half ? cost.backward_s / 2 : cost.backward_s;
  };
  costs.bytes = [at](const Op& op) {
    return at(std::min(op.stage, op.peer), op.micro_batch).boundary_bytes;
  };
  costs.kept_bytes = [at](int stage, int micro_batch) { return at(stage, micro_batch).kept_bytes; };
  return costs;
}

std::vector<int64_t> StageLayout::BoundaryShape(int stage, const LayerLoad& load) const {
  return LastLayer(stage).output.Shape(load);
}

std::string StageLayout::Describe(int stage) const {
  const auto first = static_cast<size_t>(plan_.stage_begins[static_cast<size_t>(stage)]);
  const LayerSpec& last = LastLayer(stage);
  const std::string& name = specs_[first].name;
  return name == last.name ? name : name + " to " + last.name;
}

}  // namespace equipoise
