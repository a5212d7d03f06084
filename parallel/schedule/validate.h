#pragma once

#include <optional>
#include <string>

#include "parallel/schedule/schedule.h"

namespace equipoise {

// A fault of a schedule, and its place.
struct ScheduleFault {
  // The op at fault; for a missing op, the op that it has to stand before (or the list's end); for
  // a deadlock, the first op that cannot run.
  OpPlace place;
  std::string message;  // one line: "rank 1, op 7 (1B0): backward before its forward 1F0"
};

// Proves a schedule correct, or finds its first fault. A correct schedule satisfies:
//   - every op belongs to a stage of its rank and to a micro-batch of the step (ops count from 0);
//   - every stage runs forward and backward (B, or I and W) exactly once for each micro-batch that
//     StepWork gives it, but for those that run in another step (RunAhead), and for no other;
//     forward before backward, I before W;
//   - forwards, backwards (B or I) and weight gradients (B or W) of a stage each come in ascending
//     order of micro-batches, so that gradients and losses add up in one order in every schedule;
//   - where it has transfers: each value that crosses ranks has exactly one S and one R, none is
//     superfluous, two ranks list what they share in the same order;
//   - where there are REDUCE: one for each stage with weights, after the stage's last weight
//     gradient, in descending order on each rank; where there are OPT: one a rank, and it is last;
//   - where there are GATHER or FREE: around each pass, and passes of a rank do not overlap;
//   - it runs to its end, also when every transfer blocks until its other end arrives.
std::optional<ScheduleFault> FindFault(const Schedule& schedule);

// Throws ConfigError with the fault's line, `where` in front ("schedule.txt"), and the lists of the
// ranks around it with the op at fault marked:
//
//   schedule.txt: rank 1, op 3 (1B2): comes after 1B3; the backwards of a stage ascend
//     op   rank 0   rank 1
//      2    0F2      1B3
//      3    0F3     >1B2<
void Validate(const Schedule& schedule, const std::string& where);

}  // namespace equipoise
