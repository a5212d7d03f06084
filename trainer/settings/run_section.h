#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "configs/base/enum_names.h"
#include "configs/yaml/fields.h"

namespace equipoise {

// When to run a step of the worst micro-batch before the first one.
enum class MemoryProbe : uint8_t { kAuto, kAlways, kNever };
constexpr auto NamesOf(MemoryProbe) {
  return std::to_array<EnumName<MemoryProbe>>({{MemoryProbe::kAuto, "auto"},
                                               {MemoryProbe::kAlways, "true"},
                                               {MemoryProbe::kNever, "false"}});
}

// The `run` section of a configuration.
struct RunSection {
  std::string dir = "runs/default";
  int64_t trace_steps = 3;
  int64_t kernel_trace = 0;
  MemoryProbe probe = MemoryProbe::kAuto;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("dir", dir, "run folder: configuration, metrics, checkpoints, report");
    visit("trace_steps", trace_steps,
          "steps recorded in trace.json after a start, measured above predicted; 0 = none",
          Between(0, 1000));
    visit("kernel_trace", kernel_trace,
          "steps, from the third of a start, whose operators and CUDA kernels each rank records in "
          "kernels.RANK.json, with a table in kernels.txt; 0 = none",
          Between(0, 1000));
    visit("probe", probe,
          "before the first step, run one of the epoch's worst micro-batch and show its peak "
          "memory beside the forecast; auto: where that is more than half of a rank's memory");
  }
};

}  // namespace equipoise
