#pragma once

#include <cstdint>
#include <string>

#include "trainer/settings/run_config.h"

namespace equipoise {

// The ranks of each island of a run of so many. Throws ConfigError where they cannot be shared out,
// and for settings that contradict train.diloco.
int RanksOfIsland(const RunConfig& config, int ranks);

// The configuration of a run of one island alone, with its share of each step's packs.
// REQUIRES: RanksOfIsland() was called.
RunConfig OfIsland(RunConfig config);

// Whether the end of a step is not that of a round.
bool IsWithinRound(const TrainSection& train, int64_t step);

// "2 islands of 4 ranks"; empty for one island.
std::string DescribeIslands(const RunConfig& config, int ranks);

}  // namespace equipoise
