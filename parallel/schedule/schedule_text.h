#pragma once

#include <string>

#include "parallel/schedule/schedule.h"

namespace equipoise {

// The text of a schedule file:
//
//   # comment
//   micro_batches 4
//   stage 0 rank 0 next 1 encoder
//   stage 1 rank 1
//   idle 0V2    # stage 0 has nothing to do for micro-batch 2
//   silent 0V3  # stage 0 runs, but its output has no rows
//   rank 0: 0V0 0S0>1 0V1 (0S1>1 0R0<1) 0U0 ... 0REDUCE OPT
//   rank 1: ...
//
// `next` (all stages that follow, ascending), the words after it (encoder, lane and its number,
// no_input_gradient, no_weight_gradient) and the lines `idle` and `silent` (one op or more) are
// optional. Lines may come in any order, stages ascending among themselves. Transfers in
// parentheses start together.
// REQUIRES: no pass runs in another step (RunAhead).
std::string ToText(const Schedule& schedule);

// Parses that text; ToText(ParseSchedule(t)) is the normal form of t. Throws ConfigError
// "FILE:LINE:COLUMN: what; what to do". Checks syntax and graph only; validate.h checks the
// schedule.
Schedule ParseSchedule(const std::string& text, const std::string& file);
// Parses an op's text, such as "2F0". Throws ConfigError for any other.
Op ParseOp(const std::string& text);

// A picture of the schedule's compute ops in Simulate()'s default times, one row a rank, one column
// a unit of time (a forward; a full backward takes two), "." where the rank waits:
//
//   rank 0 | 0F0 0F1  .   .  0B0----  .  0B1----
//   rank 1 |  .  1F0 1B0---- 1F1 1B1----  .   .
//
// Throws ConfigError for a schedule that deadlocks.
std::string ToGrid(const Schedule& schedule);
// An excerpt of that picture, 8 columns on each side of one op, which is shown as >2B0<: the
// compute op at `marked`, or for any other op the next compute op of its rank (the last where none
// follows).
std::string ToGrid(const Schedule& schedule, const OpPlace& marked);

}  // namespace equipoise
