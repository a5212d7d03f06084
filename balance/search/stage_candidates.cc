#include "balance/search/stage_candidates.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "balance/load/partition.h"
#include "configs/base/error.h"

// The anchor is the cut at even sums of seconds. Candidates move each of its boundaries by up to a
// radius; they are listed, or where (2 radius + 1)^(stages - 1) are too many, a dynamic program
// over (stages, layers) finds the best by variance and the best by bytes. The program keeps the k
// best partial cuts for each state, which is exact, since the cost of a cut is a sum over its
// stages.

namespace equipoise {
namespace {

constexpr double kMostListed = 4096;  // most candidates around the anchor that are listed
constexpr int kSearched = 64;         // candidates from each search otherwise

std::vector<double> PrefixSums(const std::vector<double>& values) {
  std::vector<double> sums(values.size() + 1, 0.0);
  std::partial_sum(values.begin(), values.end(), sums.begin() + 1);
  return sums;
}

// One of the best partial cuts: its cost, and the partial cut that it extends.
struct Way {
  double cost = 0;
  int begin = 0;  // of its last stage
  int rank = 0;   // of the extended one, among those that end at `begin`
};

class CutProgram {
 public:
  CutProgram(const CutCosts& costs, const CutSearch& search)
      : costs_(costs),
        search_(search),
        layers_(static_cast<int>(costs.layer_s.size())),
        before_(PrefixSums(costs.layer_s)),
        mean_(before_.back() / search.stages) {}

  std::vector<std::vector<int>> Run() {
    ways_.assign(search_.stages + 1, std::vector<std::vector<Way>>(layers_ + 1));
    ways_[0][0] = {{}};
    for (int stage = 1; stage <= search_.stages; ++stage) {
      for (int end = stage; end <= layers_; ++end) {
        if (MayCut(stage, end)) Extend(stage, end);
      }
    }
    std::vector<std::vector<int>> all;
    for (size_t k = 0; k < ways_[search_.stages][layers_].size(); ++k) all.push_back(Trace(k));
    return all;
  }

 private:
  bool MayCut(int stage, int at) const {
    if (stage == search_.stages) return at == layers_;
    return search_.radius < 0 || std::abs(at - search_.around[stage]) <= search_.radius;
  }

  // Finds the best partial cuts into `stage` stages of the layers before `end`.
  void Extend(int stage, int end) {
    std::vector<Way>& best = ways_[stage][end];
    for (int begin = stage - 1; begin < end; ++begin) {
      const double off = before_[end] - before_[begin] - mean_;
      const double sent = end < layers_ ? search_.bytes_weight * costs_.output_bytes[end - 1] : 0;
      const std::vector<Way>& from = ways_[stage - 1][begin];
      for (int k = 0; k < static_cast<int>(from.size()); ++k) {
        best.push_back({from[k].cost + off * off + sent, begin, k});
      }
    }
    const auto cheaper = [](const Way& a, const Way& b) {
      return std::tie(a.cost, a.begin, a.rank) < std::tie(b.cost, b.begin, b.rank);
    };
    const size_t keep = std::min(best.size(), static_cast<size_t>(search_.keep));
    std::partial_sort(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(keep), best.end(),
                      cheaper);
    best.resize(keep);
  }

  std::vector<int> Trace(size_t rank) const {
    std::vector<int> begins(search_.stages + 1, layers_);
    for (int stage = search_.stages; stage > 0; --stage) {
      const Way& way = ways_[stage][begins[stage]][rank];
      begins[stage - 1] = way.begin;
      rank = static_cast<size_t>(way.rank);
    }
    return begins;
  }

  const CutCosts& costs_;
  const CutSearch& search_;
  const int layers_;
  const std::vector<double> before_;  // [layer] seconds of the layers before it
  const double mean_;
  std::vector<std::vector<std::vector<Way>>> ways_;  // [stages][end]
};

// Lists all cuts within `radius` of `around`, in lexicographic order.
void ListNear(const std::vector<int>& around, int radius, std::vector<int>& begins,
              std::vector<std::vector<int>>& all) {
  const size_t cut = begins.size();
  if (cut + 1 == around.size()) {
    if (begins.back() < around.back()) {
      all.push_back(begins);
      all.back().push_back(around.back());
    }
    return;
  }
  for (int at = around[cut] - radius; at <= around[cut] + radius; ++at) {
    if (at <= begins.back()) continue;
    begins.push_back(at);
    ListNear(around, radius, begins, all);
    begins.pop_back();
  }
}

std::vector<std::vector<int>> CandidatesNear(const CutCosts& costs, int stages, int radius) {
  const std::vector<int> anchor = AnchorStages(costs, stages);
  std::vector<std::vector<int>> all;
  if (std::pow(2 * radius + 1, stages - 1) <= kMostListed) {
    std::vector<int> begins = {0};
    ListNear(anchor, radius, begins, all);
    return all;
  }
  // A weight so large that only bytes count.
  const double total = std::accumulate(costs.layer_s.begin(), costs.layer_s.end(), 0.0);
  for (const double weight : {0.0, total * total}) {
    const auto found = LeastVariance(costs, {stages, weight, kSearched, radius, anchor});
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

// Rank of each candidate: the number of candidates with a lower value.
std::vector<size_t> RanksBy(const std::vector<StageCandidate>& all, double StageCandidate::*value) {
  std::vector<double> sorted;
  sorted.reserve(all.size());
  for (const StageCandidate& each : all) sorted.push_back(each.*value);
  std::sort(sorted.begin(), sorted.end());
  std::vector<size_t> ranks;
  ranks.reserve(all.size());
  for (const StageCandidate& each : all) {
    ranks.push_back(static_cast<size_t>(
        std::lower_bound(sorted.begin(), sorted.end(), each.*value) - sorted.begin()));
  }
  return ranks;
}

}  // namespace

StageCandidate MakeCandidate(const CutCosts& costs, std::vector<int> begins) {
  const std::vector<double> before = PrefixSums(costs.layer_s);
  const size_t stages = begins.size() - 1;
  const double mean = before.back() / static_cast<double>(stages);
  StageCandidate candidate;
  for (size_t s = 0; s < stages; ++s) {
    const double off = before[begins[s + 1]] - before[begins[s]] - mean;
    candidate.variance += off * off / static_cast<double>(stages);
    if (s > 0) candidate.sent_bytes += costs.output_bytes[begins[s] - 1];
  }
  candidate.begins = std::move(begins);
  return candidate;
}

std::vector<int> AnchorStages(const CutCosts& costs, int stages) {
  const int layers = static_cast<int>(costs.layer_s.size());
  EQUIPOISE_CHECK(1 <= stages && stages <= layers, stages, " stages of ", layers, " layers");
  const std::vector<double> before = PrefixSums(costs.layer_s);
  std::vector<int> begins = {0};
  for (int stage = 1; stage < stages; ++stage) {
    const double share = before.back() * stage / stages;
    int nearest = begins.back() + 1;
    for (int at = nearest + 1; at <= layers - (stages - stage); ++at) {
      if (std::abs(before[at] - share) < std::abs(before[nearest] - share)) nearest = at;
    }
    begins.push_back(nearest);
  }
  begins.push_back(layers);
  return begins;
}

std::vector<std::vector<int>> LeastVariance(const CutCosts& costs, const CutSearch& search) {
  return CutProgram(costs, search).Run();
}

std::vector<StageCandidate> BalancedStages(const CutCosts& costs, int stages, int radius,
                                           size_t keep) {
  std::vector<std::vector<int>> all = CandidatesNear(costs, stages, radius);
  all.push_back(EvenStages(costs.layer_s, stages));
  all.push_back(LeastVariance(costs, {stages, 0, 1, -1, {}}).front());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::vector<StageCandidate> candidates;
  candidates.reserve(all.size());
  for (std::vector<int>& begins : all)
    candidates.push_back(MakeCandidate(costs, std::move(begins)));
  const std::vector<size_t> by_variance = RanksBy(candidates, &StageCandidate::variance);
  const std::vector<size_t> by_bytes = RanksBy(candidates, &StageCandidate::sent_bytes);
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const size_t sum_a = by_variance[a] + by_bytes[a], sum_b = by_variance[b] + by_bytes[b];
    return std::tie(sum_a, by_variance[a]) < std::tie(sum_b, by_variance[b]);
  });
  std::vector<StageCandidate> best;
  for (size_t i = 0; i < std::min(keep, order.size()); ++i) best.push_back(candidates[order[i]]);
  return best;
}

}  // namespace equipoise
