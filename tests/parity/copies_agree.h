#pragma once

#include "trainer/run/parallel_model.h"

namespace equipoise::testing {

// Whether the values of parameters that all tensor ranks hold whole have the same bits on each of
// them (but where data ranks share out values: there are none between passes), and those of ranks
// that hold copies of a shard (hierarchical ZeRO). Collective over these ranks.
bool CopiesAgree(ParallelModel& model);

}  // namespace equipoise::testing
