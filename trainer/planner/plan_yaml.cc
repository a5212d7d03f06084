#include "trainer/planner/plan_yaml.h"

#include <sstream>

namespace equipoise {

std::string PlanToYaml(const Plan& plan, const PlanOutlook& outlook) {
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
  if (outlook.tokens > 0) {
    out << "  tiles: " << outlook.tiles << "\n  tokens: " << outlook.tokens << "\n";
  }
  out << "  recompute_layers: [";
  for (size_t layer = 0; layer < plan.recompute.size(); ++layer) {
    out << (layer > 0 ? ", " : "") << ToString(plan.recompute[layer]);
  }
  out << "]\n";
  if (outlook.global_batch > 0) out << "train:\n  global_batch: " << outlook.global_batch << "\n";
  if (outlook.step_s > 0) {
    out << "predicted:\n  step_s: " << outlook.step_s << "\n  error_band: " << outlook.error_band
        << "\n  peak_bytes: " << outlook.peak_bytes << "\n";
  }
  return out.str();
}

}  // namespace equipoise
