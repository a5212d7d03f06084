#pragma once

#include <string>
#include <vector>

#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"
#include "parallel/plan.h"

namespace equipoise {

// Cuts layers of these costs into `parts` consecutive stages, none empty, so that the cost of the
// most expensive stage is least; among equals, so that earlier stages are cheapest. Exact dynamic
// program. Returns parts + 1 begins. Throws ConfigError when there are fewer layers than parts.
std::vector<int> EvenStages(const std::vector<double>& costs, int parts);

// Consecutive layers, begin .. end - 1, that are cut into stages on their own.
struct CutSpan {
  int begin = 0, end = 0, stages = 1;
};
// The layers and stages of each component of a plan, for a model of `num_layers`.
std::vector<CutSpan> CutSpans(const Plan& shape, int num_layers);

// EvenStages() of each span; the begins of all stages in order.
std::vector<int> EvenStages(const std::vector<double>& costs, const std::vector<CutSpan>& spans);
// The values of a span's layers.
std::vector<double> ValuesOf(const CutSpan& span, const std::vector<double>& values);
// `begins` (empty before the first span) continued by the stages of `span`; `cut` counts from the
// span's first layer.
std::vector<int> Appended(std::vector<int> begins, const CutSpan& span,
                          const std::vector<int>& cut);

// Forward and backward FLOPs of each layer for a load, of the passes that it runs with these
// components `frozen`.
std::vector<double> LayerCosts(const ModelConfig& config, const std::vector<std::string>& frozen,
                               const LayerLoad& load);

}  // namespace equipoise
