#include "trainer/planner/plan_yaml.h"

#include <sstream>

namespace equipoise {

std::string PlanToYaml(const Plan& plan, const PlanPrediction& prediction) {
  std::ostringstream out;
  out << "parallel:\n  data: " << plan.data << "\n  pipeline: " << plan.pipeline
      << "\n  tensor: " << plan.tensor;
  if (plan.encoder_ranks > 0) {
    out << "\n  encoder: disaggregated\n  encoder_ranks: " << plan.encoder_ranks;
  }
  out << "\n  schedule: " << plan.schedule << "\n  chunks: " << plan.chunks
      << "\n  zero: " << plan.zero << "\n  stage_layers: [";
  for (size_t s = 0; s + 1 < plan.stage_begins.size(); ++s) {
    out << (s > 0 ? ", " : "") << plan.stage_begins[s + 1] - plan.stage_begins[s];
  }
  out << "]\nbalance:\n";
  if (prediction.tokens > 0) {
    out << "  tiles: " << prediction.tiles << "\n  tokens: " << prediction.tokens << "\n";
  }
  out << "  recompute_layers: [";
  for (size_t layer = 0; layer < plan.recompute.size(); ++layer) {
    out << (layer > 0 ? ", " : "") << ToString(plan.recompute[layer]);
  }
  out << "]\n";
  if (prediction.global_batch > 0)
    out << "train:\n  global_batch: " << prediction.global_batch << "\n";
  if (prediction.step_s > 0) {
    out << "predicted:\n  step_s: " << prediction.step_s
        << "\n  error_band: " << prediction.error_band
        << "\n  peak_bytes: " << prediction.peak_bytes << "\n";
  }
  return out.str();
}

}  // namespace equipoise
