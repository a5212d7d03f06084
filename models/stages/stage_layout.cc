#include "models/stages/stage_layout.h"

#include <algorithm>
#include <utility>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/modules.h"

namespace equipoise {
namespace {

// Of the stages from `first` on.
StepWork WorkFrom(const StageLayout& stages, int first,
                  const std::vector<LayerLoad>& micro_batches) {
  StepWork work;
  for (int stage = first; stage < stages.plan().num_stages(); ++stage) {
    std::vector<bool> runs, sends;
    for (size_t i = 0; i < micro_batches.size(); ++i) {
      // A search for memory asks for many micro-batches of the same load.
      const bool repeated = i > 0 && micro_batches[i] == micro_batches[i - 1];
      runs.push_back(repeated ? runs.back() : stages.Runs(stage, micro_batches[i]));
      sends.push_back(repeated ? sends.back() : stages.Sends(stage, micro_batches[i]));
    }
    work.runs.push_back(std::move(runs));
    work.sends.push_back(std::move(sends));
  }
  return work;
}

}  // namespace

StageLayout::StageLayout(const ModelConfig& config, const Plan& plan,
                         const std::vector<std::string>& frozen)
    : StageLayout(std::make_shared<const std::vector<LayerSpec>>(LayerSpecs(config)), plan,
                  frozen) {}

StageLayout::StageLayout(std::shared_ptr<const std::vector<LayerSpec>> specs, const Plan& plan,
                         const std::vector<std::string>& frozen)
    : plan_(plan), specs_(std::move(specs)) {
  const std::vector<int>& begins = plan.stage_begins;
  int stages = 0;
  for (const PlanComponent& component : plan.components) {
    EQUIPOISE_CHECK(begins.at(static_cast<size_t>(stages)) == component.first_layer,
                    "the stages of a component do not begin with its layers");
    stages += component.num_stages();
  }
  EQUIPOISE_CHECK(static_cast<int>(begins.size()) == stages + 1 && begins.front() == 0 &&
                      begins.back() == static_cast<int>(specs_->size()),
                  "stages that do not cover the layers");
  const int copied = FillsBubbles(plan.encoder) ? plan.components.front().num_stages() : 0;
  bool trainable_before = false;
  for (int s = 0; s < plan.num_stages(); ++s) {
    if (plan.CopyOf(s) > 0) continue;  // as the first
    const LayerSpan layers = plan.LayersOf(s);
    const bool trained =
        std::any_of(specs_->begin() + layers.begin, specs_->begin() + layers.end,
                    [&frozen](const LayerSpec& spec) { return IsTrained(spec, frozen); });
    if (s < copied) {
      encoder_.needs_input_gradient.push_back(trainable_before);
      encoder_.needs_weight_gradient.push_back(trained);
    } else {
      const bool last = plan.NextStage(s) < 0;
      text_.stages.push_back({.rank = plan.RankOfStage(s),
                              .next = {},
                              .encoder = plan.ComponentOfStage(s).encoder,
                              .needs_input_gradient = trainable_before,
                              .needs_weight_gradient = trained});
      if (!last) text_.stages.back().next = {text_.num_stages()};
    }
    trainable_before = trainable_before || trained;
  }
  encoder_.ranks = copied > 0 ? plan.encoder_ranks() : 1;
  encoder_.lanes = plan.encoder_lanes();
  encoder_.pieces = copied > 0 ? plan.encoder_chunks() : 1;
  graph_ = copied > 0 ? WithEncoderStages(text_, encoder_) : text_;
}

EncoderPipelines StageLayout::Encoder(const std::vector<LayerLoad>& micro_batches) const {
  EncoderPipelines encoder = encoder_;
  for (const LayerLoad& load : micro_batches) encoder.runs.push_back(Runs(0, load));
  return encoder;
}

const LayerSpec& StageLayout::FirstLayer(int stage) const {
  return (*specs_)[static_cast<size_t>(plan_.LayersOf(stage).begin)];
}

const LayerSpec& StageLayout::LastLayer(int stage) const {
  return (*specs_)[static_cast<size_t>(plan_.LayersOf(stage).end - 1)];
}

bool StageLayout::Runs(int stage, const LayerLoad& load) const {
  // Vision comes before text: the stage's first and last layer tell.
  return FirstLayer(stage).Runs(load) || LastLayer(stage).Runs(load);
}

bool StageLayout::Sends(int stage, const LayerLoad& load) const {
  return plan_.NextStage(stage) >= 0 && LastLayer(stage).Runs(load);
}

StepWork StageLayout::Work(const std::vector<LayerLoad>& micro_batches) const {
  return WorkFrom(*this, 0, micro_batches);
}

StepWork StageLayout::TextWork(const std::vector<LayerLoad>& micro_batches) const {
  return WorkFrom(*this, first_text_stage(), micro_batches);
}

std::vector<int64_t> StageLayout::BoundaryShape(int stage, const LayerLoad& load) const {
  return LastLayer(stage).output.Shape(load, plan_.row_shares());
}

std::string StageLayout::Describe(int stage) const {
  const LayerSpec& last = LastLayer(stage);
  const std::string& name = FirstLayer(stage).name;
  return name == last.name ? name : name + " to " + last.name;
}

}  // namespace equipoise
