#pragma once

#include <cstddef>
#include <vector>

namespace equipoise {

// Costs by which a cut of a model into stages is judged, for one typical micro-batch.
struct CutCosts {
  std::vector<double> layer_s;       // [layer] seconds that it adds to its stage
  std::vector<double> output_bytes;  // [layer] sent when the next layer is in another stage
};

// A cut of a model: stage s has the layers begins[s] .. begins[s + 1] - 1.
struct StageCandidate {
  std::vector<int> begins;  // stages + 1 entries
  double variance = 0;      // population variance of the stages' seconds
  double sent_bytes = 0;    // over all cuts

  bool operator==(const StageCandidate&) const = default;
};

// All functions REQUIRE: 1 <= stages <= layers; both vectors of CutCosts have an entry for each
// layer.

StageCandidate MakeCandidate(const CutCosts& costs, std::vector<int> begins);

// The anchor: each cut, from left to right, is where the sum over the layers before is nearest to
// its even share, the earlier of two equally near places; every stage has a layer.
std::vector<int> AnchorStages(const CutCosts& costs, int stages);

// The `keep` best cuts by the sum over stages of (seconds - mean)^2 plus bytes_weight times the
// bytes sent, best first, among those at most `radius` layers from `around` (-1: all). Exact
// dynamic program over the `keep` best partial cuts that end at each layer: O(stages * layers^2 *
// keep).
struct CutSearch {
  int stages = 1;
  double bytes_weight = 0;  // seconds^2 a byte
  int keep = 1;
  int radius = -1;
  std::vector<int> around;  // begins
};
std::vector<std::vector<int>> LeastVariance(const CutCosts& costs, const CutSearch& search);

// Balanced model partition (OmniBal, arXiv 2407.20761, section "balanced model partition"): all
// cuts within `radius` layers of the anchor's, ordered by the sum of their ranks in variance and in
// bytes sent, ties by variance. Beyond the paper, the candidates include the exact optima of least
// variance and of least maximum, so that a poor anchor does no harm. Where there are too many cuts
// to list, the best by variance and the best by bytes are taken. Returns at most `keep`, best
// first.
std::vector<StageCandidate> BalancedStages(const CutCosts& costs, int stages, int radius,
                                           size_t keep);

}  // namespace equipoise
