#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "trainer/outputs/metrics.h"

namespace equipoise {

// Memory of one rank and where it computes.
struct RankMemory {
  std::string machine, device;
  int64_t forecast_bytes = 0;  // of tensors in the worst step; 0: not known
  int64_t tensor_bytes = 0;    // peak of LibTorch's allocator
  int64_t rss_bytes = 0;       // peak of the process, libraries included
};

// Facts of a run in its report, besides its steps. Counts are of all starts together.
struct RunSummary {
  std::string command;     // that started it, without mpirun
  std::string finished;    // UtcText()
  double wall_s = 0;       // of this start
  int64_t first_step = 0;  // steps that this start found done
  std::string plan, precision;
  int64_t micro_batches = 0, threads = 0, parameters = 0;
  int64_t tokens = 0, samples = 0, images = 0, left_out = 0, skipped = 0;
  double predicted_step_s = 0;  // 0: not known
  std::vector<RankMemory> ranks;
};

// "2026-11-22 21:50 UTC"
std::string UtcText(std::time_t time);

// The command line of this process, quoted for a shell where that is needed; empty where the
// system does not tell.
std::string CommandLine();

// Date, machine, ranks and time in one line.
std::string RunLead(const RunSummary& run);

// Name and value of everything else, in the order of a table. Pure.
std::vector<std::pair<std::string, std::string>> RunFacts(const RunSummary& run,
                                                          const std::vector<StepMetrics>& steps);

}  // namespace equipoise
