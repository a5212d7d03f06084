#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace equipoise {

// A kernel that has run on a GPU, or an operator on a CPU.
struct TracedWork {
  std::string name;
  int64_t lane = 0;  // stream of the GPU, or thread
  int64_t start_ns = 0, end_ns = 0;
};

// Words for what a table shows.
struct TracedKind {
  std::string work;  // "CUDA kernels"
  std::string lane;  // "stream"
};
TracedKind KernelKind();
TracedKind OperatorKind();

// A table of what `steps` steps have run, the longest first: launches in all steps, milliseconds
// per step, share of all work's time, name (120 characters of it). Time within another work of the
// same lane, as of an operator that another calls, counts for the inner one alone, so that shares
// add up. The last line: milliseconds per step in which the lane with the most work is busy, and in
// which it is idle between its first work and its last.
std::string KernelTable(const std::vector<TracedWork>& work, int64_t steps, const TracedKind& kind);

}  // namespace equipoise
