#pragma once

#include <optional>
#include <string>

#include "parallel/schedule/schedule.h"

namespace equipoise {

// What is wrong with a schedule, and where.
struct ScheduleFault {
  OpPlace place;        // of the op at fault; of the first op that can not run, for a deadlock
  std::string message;  // one line: "rank 1, op 7 (1B0): backward before its forward 1F0"
};

// Proves a schedule right, or names its first fault:
//   - every op belongs to a stage of its rank and to a micro-batch of the step;
//   - every stage runs forward and backward (B, or I and W) exactly once for each micro-batch that
//     StepWork gives it, and none else; forward before backward, I before W;
//   - forwards, backwards (B or I) and weight gradients (B or W) of a stage come in ascending order
//     of micro-batches each, so that gradients and losses add up in one order in every schedule;
//   - where it has transfers: every S has its R, each value that crosses ranks has exactly one,
//   none
//     is superfluous, two ranks list what they share in the same order;
//   - REDUCE, where there is one, follows the stage's last weight gradient; OPT is last;
//   - it runs to its end, also with every transfer blocking until its other end has come.
std::optional<ScheduleFault> FindFault(const Schedule& schedule);

// Throws ConfigError with the fault's line, `where` in front ("schedule.txt"), and the grid around
// it.
void Validate(const Schedule& schedule, const std::string& where);

}  // namespace equipoise
