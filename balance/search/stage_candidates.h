#pragma once

#include <cstddef>
#include <vector>

namespace equipoise {

// Costs by which a cut of a model into stages is judged, for one typical micro-batch.
struct CutCosts {
  std::vector<double> layer_s;       // [layer] seconds that it adds to its stage
  std::vector<double> output_bytes;  // [layer] sent when the next layer is in another stage
};

// One way to cut: stage s holds the layers begins[s] .. begins[s + 1] - 1.
struct StageCandidate {
  std::vector<int> begins;  // stages + 1 entries
  double variance = 0;      // population variance of the stages' seconds
  double sent_bytes = 0;    // over all cuts

  bool operator==(const StageCandidate&) const = default;
};

// REQUIRES of all: 1 <= stages <= layers; both vectors of CutCosts have an entry a layer.

StageCandidate MakeCandidate(const CutCosts& costs, std::vector<int> begins);

// Cuts where the sum of the layers before comes nearest to its even share, left to right, leaving
// each stage a layer; of two equally near places the earlier.
std::vector<int> AnchorStages(const CutCosts& costs, int stages);

// The `keep` best ways to cut by the sum over stages of (seconds - mean)^2 plus bytes_weight times
// the bytes sent, best first, cuts at most `radius` layers from those of `around` (-1: anywhere).
// Exact dynamic program over the `keep` best ways to each cut: O(stages * layers^2 * keep).
struct CutSearch {
  int stages = 1;
  double bytes_weight = 0;  // seconds^2 a byte
  int keep = 1;
  int radius = -1;
  std::vector<int> around;  // begins
};
std::vector<std::vector<int>> LeastVariance(const CutCosts& costs, const CutSearch& search);

// Balanced model partition (OmniBal, arXiv 2407.20761, section "balanced model partition"): all
// ways to cut within `radius` layers of the anchor's cuts, ranked by the sum of their ranks in
// variance and in bytes sent, ties by variance. Beyond the paper the exact programs' results are
// among the candidates (least variance; cheapest slowest stage), so a poor anchor does no harm.
// Where there are too many ways to list, the best by variance and by bytes stand for them.
// Returns at most `keep`, best first.
std::vector<StageCandidate> BalancedStages(const CutCosts& costs, int stages, int radius,
                                           size_t keep);

}  // namespace equipoise
