#pragma once

#include <fmt/format.h>

#include <string>
#include <type_traits>
#include <vector>

#include "configs/base/enum_names.h"
#include "parallel/plan.h"

namespace equipoise {

// Predictions of the planner for a plan; zeros when there was no search.
struct PlanPrediction {
  double step_s = 0;              // median seconds of a step
  double error_band = 0;          // standard deviation of step_s, as a share of it
  int64_t peak_bytes = 0;         // peak memory of the fullest rank
  int64_t tiles = 0, tokens = 0;  // limits of a micro-batch
  // Packs of a step when the limits are not those of the configuration; else 0.
  int64_t global_batch = 0;
  // Of each pipeline rank's tensors at their peak, without the reserve; may be empty.
  std::vector<int64_t> memory_bytes = {};
};

// The value of a plan's field as YAML, on one line.
template <class T>
std::string PlanFieldText(const T& value) {
  if constexpr (NamedEnum<T>) {
    return ToString(value);
  } else if constexpr (std::is_enum_v<T>) {
    return fmt::to_string(FieldValue(value));
  } else {
    return fmt::to_string(value);
  }
}
template <class T>
std::string PlanFieldText(const std::vector<T>& list) {
  std::string items;
  for (const T& item : list) items += (items.empty() ? "" : ", ") + PlanFieldText(item);
  return fmt::format("[{}]", items);
}

// A line of a configuration: `parallel: {data: 4}`.
struct PlanSetting {
  std::string section, key, value;
  bool operator==(const PlanSetting&) const = default;
};
// What pins a plan in a configuration without pins: its fields but those that the configuration has
// so in any case, or refuses.
std::vector<PlanSetting> PlanSettings(const Plan& plan);

// The text of RUN/plan.yaml: the whole plan with the keys of `parallel` and `balance`, so that it
// can be pinned by a configuration. `runs_ahead`: its encoder is a step ahead (parallel.prefetch).
std::string PlanToYaml(const Plan& plan, const PlanPrediction& prediction, bool runs_ahead = false);

}  // namespace equipoise
