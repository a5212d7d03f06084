#pragma once

#include <array>
#include <cstdint>

#include "configs/base/enum_names.h"

namespace equipoise {

// Values of `goal.objective`: by what a plan is chosen among those that keep the limits.
enum class Objective : uint8_t {
  kAuto,        // kCost under a deadline, else kThroughput
  kThroughput,  // fewest hours
  kCost,        // fewest GPU hours
  kTraffic,     // fewest bytes between nodes, then within them, of all ranks
};

constexpr auto NamesOf(Objective) {
  return std::to_array<EnumName<Objective>>({{Objective::kAuto, "auto"},
                                             {Objective::kThroughput, "throughput"},
                                             {Objective::kCost, "cost"},
                                             {Objective::kTraffic, "traffic"}});
}

}  // namespace equipoise
