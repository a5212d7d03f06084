#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace equipoise {

// What every backend must do. Each check runs on all ranks of `world` and throws
// std::runtime_error that says what differs.
struct ConformanceCheck {
  std::string name;
  std::function<void(Communicator& world)> run;
};

enum class Sums {
  kInRankOrder,  // in fp32, rounded once: one right result, to the bit
  kEveryHop,     // rounded at every hop of a ring: within 4 ulp of the sum of the magnitudes
};
std::vector<ConformanceCheck> ConformanceChecks(Sums sums = Sums::kInRankOrder);

}  // namespace equipoise
