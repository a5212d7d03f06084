#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "trainer/outputs/metrics.h"

namespace equipoise {

// Memory of a rank, in bytes, and the device on which it computes.
struct RankMemory {
  std::string machine, device;
  int64_t forecast_bytes = 0;  // predicted peak of tensors in the worst step; 0: unknown
  int64_t tensor_bytes = 0;    // peak of LibTorch's allocator
  int64_t rss_bytes = 0;       // peak of the process, libraries included
};

// Facts of a run for its report, besides its steps. Counts include steps before a restart.
struct RunSummary {
  std::string command;     // command line, without mpirun
  std::string finished;    // time, by UtcText()
  double wall_s = 0;       // seconds since this start
  int64_t first_step = 0;  // steps that were done before this start
  std::string plan, precision;
  int64_t micro_batches = 0, threads = 0, parameters = 0;
  int64_t tokens = 0, samples = 0, images = 0, left_out = 0, skipped = 0;
  double predicted_step_s = 0;  // 0: unknown
  std::vector<RankMemory> ranks;
};

// A time, such as "2026-11-22 21:50 UTC".
std::string UtcText(std::time_t time);

// The command line of this process, quoted for a shell where needed; empty if unknown.
std::string CommandLine();

// Date, machine, ranks and duration in one line.
std::string RunLead(const RunSummary& run);

// Names and values of the other facts, in the order of the report's table. Pure.
std::vector<std::pair<std::string, std::string>> RunFacts(const RunSummary& run,
                                                          const std::vector<StepMetrics>& steps);

}  // namespace equipoise
