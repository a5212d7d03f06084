#include "parallel/plan.h"

#include <fmt/format.h>

#include <array>

#include "configs/base/error.h"

namespace equipoise {
namespace {

constexpr std::array<const char*, 4> kRecomputeNames = {"none", "attention", "mlp", "full"};

}  // namespace

std::vector<int> Plan::StagesOf(int pipeline_rank) const {
  std::vector<int> stages;
  for (int stage = 0; stage < num_stages(); ++stage) {
    if (RankOfStage(stage) == pipeline_rank) stages.push_back(stage);
  }
  return stages;
}

std::vector<int> Plan::stage_layers() const {
  std::vector<int> layers;
  for (size_t s = 0; s + 1 < stage_begins.size(); ++s) {
    layers.push_back(stage_begins[s + 1] - stage_begins[s]);
  }
  return layers;
}

Mesh Plan::mesh() const {
  return Mesh({{Axis::kData, data}, {Axis::kPipeline, pipeline}, {Axis::kTensor, tensor}});
}

std::string ToString(Recompute recompute) {
  return kRecomputeNames[static_cast<size_t>(recompute)];
}

Recompute ParseRecompute(const std::string& word) {
  for (size_t i = 0; i < kRecomputeNames.size(); ++i) {
    if (word == kRecomputeNames[i]) return static_cast<Recompute>(i);
  }
  EQUIPOISE_CHECK(false, "no recompute '", word, "'");
  return Recompute::kNone;
}

std::string DescribeAxes(const Plan& plan) {
  const std::string encoder =
      plan.encoder_ranks == 0 ? "" : fmt::format(" ({} for the encoder)", plan.encoder_ranks);
  return fmt::format("data {} x pipeline {}{} x tensor {}", plan.data, plan.pipeline, encoder,
                     plan.tensor);
}

}  // namespace equipoise
