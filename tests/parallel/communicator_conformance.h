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
const std::vector<ConformanceCheck>& ConformanceChecks();

}  // namespace equipoise
