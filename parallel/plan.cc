#include "parallel/plan.h"

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
  const std::string encoder = plan.encoder_ranks == 0
                                  ? ""
                                  : " (" + std::to_string(plan.encoder_ranks) + " for the encoder)";
  return "data " + std::to_string(plan.data) + " x pipeline " + std::to_string(plan.pipeline) +
         encoder + " x tensor " + std::to_string(plan.tensor);
}

}  // namespace equipoise
