#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "balance/costs/profile.h"
#include "models/layers/micro_batch.h"
#include "models/spec/model_config.h"
#include "parallel/comm/communicator.h"
#include "parallel/plan.h"
#include "parallel/schedule/schedule.h"
#include "trainer/settings/precision.h"

namespace equipoise::testing {

// One configuration whose steps are predicted and run.
struct BenchCase {
  std::string name;  // "pipeline 1f1b, even, none, mixed"
  Plan plan;
  std::string mix;  // of micro-batches, see BenchBatches
};

// What every case trains: a small model and the size of its micro-batches.
struct BenchSettings {
  ModelConfig model;
  Precision precision = Precision::kFp32;
  int micro_batches = 8;  // of a step, over all data ranks
  int64_t tokens = 256;   // of the longest
  int64_t tiles = 8;      // of the one with most
  int rounds = 5;         // each measures every layer and runs every case
  int steps = 2;          // measured of each case in a round
};

// At least 24 cases for two ranks: pipelines under every schedule, data ranks with and without
// ZeRO 1, tensor ranks; partitions, recomputation and mixes of micro-batches vary.
std::vector<BenchCase> BenchCases(const BenchSettings& settings);

// The step's micro-batches, micro-batch after micro-batch over the data ranks. Mixes: "even" (all
// alike), "mixed" (tokens, segments and tiles differ), "text" (no tiles), "vision" (many tiles,
// few tokens). Every token has a target.
struct BenchBatch {
  MicroBatch batch;
  LayerLoad load;
};
std::vector<BenchBatch> BenchBatches(const BenchSettings& settings, const std::string& mix);

// What this rank has measured of a case, over all rounds.
struct BenchRun {
  std::vector<double> seconds, busy_s;  // by step; busy: of forwards and backwards alone
  int64_t peak_bytes = 0;
  Schedule schedule;
};
// A warm step, then measured ones: forward, backward, reduction, optimizer. Collective over the
// world's ranks.
void RunBenchCase(const BenchSettings& settings, const BenchCase& test, Communicator& world,
                  BenchRun& run);

struct BenchResult {
  double step_s = 0, step_s_p10 = 0, step_s_p90 = 0;  // measured: mean and spread
  double predicted_step_s = 0;
  std::vector<double> busy_s, predicted_busy_s;  // by rank
  std::vector<int64_t> peak_bytes, predicted_peak_bytes;
};
// What was measured beside what a profile of these ranks predicts. Collective.
BenchResult CompareBenchCase(const BenchSettings& settings, const BenchCase& test,
                             const BenchRun& run, const Profile& profile, Communicator& world);

}  // namespace equipoise::testing
