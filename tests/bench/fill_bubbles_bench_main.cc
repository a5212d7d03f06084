// Time that filling a step's bubbles takes on one core. Started by scripts/bench/fill_bubbles;
// a line for each size: GPUs, pipeline, micro-batches, pieces, milliseconds of the
// processor (the median of 9).

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "parallel/schedule/builders.h"
#include "parallel/schedule/fill_bubbles.h"

namespace equipoise {
namespace {

struct Size {
  const char* schedule;
  int pipeline, chunks, tensor, micro_batches, pieces;
};

// Micro-batches with unlike pictures, as a real step has them.
SimulationCosts UnlikeCosts(const Size& size) {
  SimulationCosts costs;
  costs.seconds = [size](const Op& op) {
    const double pictures = 0.5 + 0.1 * (op.micro_batch * 7 % 11);
    const double backward = op.kind == OpKind::kBackward || op.kind == OpKind::kEncoderBackward;
    if (op.kind == OpKind::kEncoderForward || op.kind == OpKind::kEncoderBackward) {
      return 0.5 * pictures / size.pieces * (1 + backward);
    }
    return IsCompute(op.kind) ? (1 + backward) / size.chunks : 0.0;
  };
  costs.bytes = [](const Op&) { return 1e6; };
  costs.link = [](int, int) { return LinkModel{1e-5, 4e10}; };
  return costs;
}

void Time(const Size& size) {
  std::vector<int> rank_of_stage;
  for (int s = 0; s < size.pipeline * size.chunks; ++s) rank_of_stage.push_back(s % size.pipeline);
  const Schedule llm = BuildSchedule(size.schedule, ChainGraph(rank_of_stage), size.micro_batches);
  const SimulationCosts costs = UnlikeCosts(size);
  for (const EncoderPlacement placement : kBubblePlacements) {
    std::vector<double> times;
    for (int run = 0; run < 9; ++run) {
      const std::clock_t start = std::clock();
      FillBubbles(llm, {.pieces = size.pieces}, costs, placement);
      times.push_back(1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    }
    std::sort(times.begin(), times.end());
    std::printf("%d GPUs  %-11s  pipeline %2d x %d  micro-batches %2d  pieces %d  %-14s  %.1f ms\n",
                size.pipeline * size.tensor, size.schedule, size.pipeline, size.chunks,
                size.micro_batches, size.pieces, ToString(placement).c_str(), times[4]);
  }
}

}  // namespace
}  // namespace equipoise

int main() {
  for (const equipoise::Size& size : std::vector<equipoise::Size>{{"1f1b", 8, 1, 8, 16, 4},
                                                                  {"interleaved", 8, 2, 8, 32, 4},
                                                                  {"1f1b", 16, 1, 4, 32, 2},
                                                                  {"1f1b", 64, 1, 1, 64, 1}}) {
    equipoise::Time(size);
  }
  return 0;
}
