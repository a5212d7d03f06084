#pragma once

#include <string>

#include "parallel/schedule/schedule.h"

namespace equipoise {

// A schedule as a file:
//
//   # comment
//   micro_batches 4
//   stage 0 rank 0 next 1
//   stage 1 rank 1 encoder no_input_gradient no_weight_gradient
//   idle 0F2                      (stage 0 has nothing to do for micro-batch 2)
//   silent 0F3                    (it runs, and its output has no rows)
//   rank 0: 0F0 0S0>1 (0R0<1 0S1>1) 0B0 ... 0REDUCE OPT
//   rank 1: ...
//
// `next`, words after it, and the lines `idle` and `silent` are optional.
std::string ToText(const Schedule& schedule);

// Reads it back; ToText(ParseSchedule(t)) is t in its normal form. Throws ConfigError
// "FILE:LINE:COLUMN: what; what to do". Only the form is checked here, see validate.h.
Schedule ParseSchedule(const std::string& text, const std::string& file);
Op ParseOp(const std::string& text);

// A picture of the schedule in equal time steps, one row a rank, one column a time unit, ops wide
// as they are long, "." where the rank waits:
//
//   rank 0 | 0F0 0F1 0F2 0F3  .   .  0B0--- ...
//
// `units` of time are rounded to columns. Transfers are left out.
std::string ToGrid(const Schedule& schedule);
// With the op at `marked` shown as >2B0<.
std::string ToGrid(const Schedule& schedule, const OpPlace& marked);

}  // namespace equipoise
