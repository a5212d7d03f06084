#include "models/stages/stage_layout.h"

#include <utility>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/modules.h"

namespace equipoise {

StageLayout::StageLayout(const ModelConfig& config, const Plan& plan,
                         const std::vector<std::string>& frozen)
    : plan_(plan), specs_(LayerSpecs(config)) {
  const std::vector<int>& begins = plan.stage_begins;
  EQUIPOISE_CHECK(static_cast<int>(begins.size()) == plan.num_stages() + 1 && begins.front() == 0 &&
                      begins.back() == static_cast<int>(specs_.size()),
                  "stages that do not cover the layers");
  int first_stage = 0;
  for (const PlanComponent& component : plan.components) {
    EQUIPOISE_CHECK(begins[static_cast<size_t>(first_stage)] == component.first_layer,
                    "the stages of a component do not begin with its layers");
    first_stage += component.num_stages();
  }
  std::vector<int> ranks;
  ranks.reserve(static_cast<size_t>(plan.num_stages()));
  for (int s = 0; s < plan.num_stages(); ++s) ranks.push_back(plan.RankOfStage(s));
  graph_ = ChainGraph(ranks);
  bool trainable_before = false;
  for (int s = 0; s < plan.num_stages(); ++s) {
    StageNode& node = graph_.stages[static_cast<size_t>(s)];
    node.encoder = plan.ComponentOfStage(s).encoder;
    node.needs_input_gradient = trainable_before;
    node.needs_weight_gradient = false;
    for (int i = begins[static_cast<size_t>(s)]; i < begins[static_cast<size_t>(s) + 1]; ++i) {
      if (IsTrained(specs_[static_cast<size_t>(i)], frozen)) node.needs_weight_gradient = true;
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
