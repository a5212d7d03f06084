#include "balance/load/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/modules.h"

namespace equipoise {

// Linear partition by dynamic programming over (number of stages, number of layers):
// O(parts x layers^2).
std::vector<int> EvenStages(const std::vector<double>& costs, int parts) {
  const int n = static_cast<int>(costs.size());
  if (parts > n) {
    throw ConfigError(fmt::format(
        "parallel.pipeline: {} stages for {} layers; use fewer pipeline ranks or chunks", parts,
        n));
  }
  std::vector<double> before(static_cast<size_t>(n) + 1, 0.0);
  for (int i = 0; i < n; ++i) before[i + 1] = before[i] + costs[i];
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // worst[p][i]: the least maximum of the stages' costs when layers 0 .. i - 1 form p stages;
  // cut[p][i]: the layer at which the last of these stages begins.
  std::vector<std::vector<double>> worst(parts + 1, std::vector<double>(n + 1, kNever));
  std::vector<std::vector<int>> cut(parts + 1, std::vector<int>(n + 1, 0));
  worst[0][0] = 0;
  for (int p = 1; p <= parts; ++p) {
    for (int i = p; i <= n; ++i) {
      for (int j = p - 1; j < i; ++j) {
        const double here = std::max(worst[p - 1][j], before[i] - before[j]);
        if (here < worst[p][i]) {
          worst[p][i] = here;
          cut[p][i] = j;
        }
      }
    }
  }
  std::vector<int> begins(static_cast<size_t>(parts) + 1, n);
  for (int p = parts, i = n; p > 0; --p) begins[p - 1] = i = cut[p][i];
  return begins;
}

std::vector<CutSpan> CutSpans(const Plan& shape, int num_layers) {
  std::vector<CutSpan> spans;
  for (const PlanComponent& component : shape.components) {
    if (!spans.empty()) spans.back().end = component.first_layer;
    spans.push_back({component.first_layer, num_layers, component.num_stages()});
  }
  return spans;
}

std::vector<double> ValuesOf(const CutSpan& span, const std::vector<double>& values) {
  return {values.begin() + span.begin, values.begin() + span.end};
}

std::vector<int> Appended(std::vector<int> begins, const CutSpan& span,
                          const std::vector<int>& cut) {
  if (begins.empty()) begins.push_back(span.begin);
  for (size_t s = 1; s < cut.size(); ++s) begins.push_back(span.begin + cut[s]);
  return begins;
}

std::vector<int> EvenStages(const std::vector<double>& costs, const std::vector<CutSpan>& spans) {
  std::vector<int> begins;
  for (const CutSpan& span : spans) {
    begins = Appended(std::move(begins), span, EvenStages(ValuesOf(span, costs), span.stages));
  }
  return begins;
}

std::vector<double> LayerCosts(const ModelConfig& config, const std::vector<std::string>& frozen,
                               const LayerLoad& load) {
  std::vector<double> costs;
  bool has_backward = false;
  for (const LayerSpec& spec : LayerSpecs(config)) {
    const bool trained = IsTrained(spec, frozen);
    has_backward = has_backward || trained;
    const double backward = has_backward ? spec.BackwardFlops(load, trained) : 0;
    costs.push_back(spec.ForwardFlops(load) + backward);
  }
  return costs;
}

}  // namespace equipoise
