#include "balance/groups/step_assignment.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "balance/load/random.h"
#include "balance/load/sample_groups.h"

// Steps from strata: every step takes one run of neighbours from each stratum of the sorted groups.
// Groups of a run are nearly equal, so that ranks do not wait for each other within a row; runs are
// matched so that steps are nearly equal, too: stratum by stratum, the step with the smallest sum
// of tokens takes the run with the most. More strata make steps more equal, but runs shorter; each
// number is tried, and that one is taken whose ranks wait least among those whose steps are equal
// enough.

namespace equipoise {
namespace {

constexpr uint64_t kOrderPurpose = 1;  // purpose of the random stream
constexpr size_t kRows = 4;            // rows of a step, for estimates of waiting
constexpr int64_t kSampledGroups = 1 << 14;

// Indices of the groups by patches, then predicted time, both ascending.
std::vector<int64_t> SortedByLoad(std::span<const LayerLoad> groups, const LoadCost& cost) {
  struct Key {
    int64_t patches;
    double time;
    int64_t group;
    auto operator<=>(const Key&) const = default;
  };
  std::vector<Key> keys;
  keys.reserve(groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    keys.push_back({groups[i].patches, cost(groups[i]), static_cast<int64_t>(i)});
  }
  std::sort(keys.begin(), keys.end());
  std::vector<int64_t> sorted;
  sorted.reserve(keys.size());
  for (const Key& key : keys) sorted.push_back(key.group);
  return sorted;
}

// `sorted` (by patches) with groups of equal patches in a random order.
std::vector<int64_t> ShuffledWithinPatches(std::vector<int64_t> sorted,
                                           std::span<const LayerLoad> groups, SplitMix random) {
  const auto patches_at = [&](size_t place) {
    return groups[static_cast<size_t>(sorted[place])].patches;
  };
  for (size_t begin = 0, end = 0; begin < sorted.size(); begin = end) {
    while (end < sorted.size() && patches_at(end) == patches_at(begin)) ++end;
    Shuffle(std::span(sorted).subspan(begin, end - begin), random);
  }
  return sorted;
}

// Standard deviation / mean.
double Variation(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (const double value : values) mean += value / n;
  for (const double value : values) squares += (value - mean) * (value - mean) / n;
  return mean > 0 ? std::sqrt(squares) / mean : 0;
}

// Steps made of runs of a sorted list of steps * global_batch groups.
class Strata {
 public:
  Strata(std::vector<int64_t> sorted, std::span<const LayerLoad> groups, const LoadCost& cost,
         int64_t steps)
      : sorted_(std::move(sorted)),
        groups_(groups),
        cost_(cost),
        steps_(steps),
        tokens_before_(sorted_.size() + 1) {
    for (size_t i = 0; i < sorted_.size(); ++i) {
      const LayerLoad& load = groups[static_cast<size_t>(sorted_[i])];
      tokens_before_[i + 1] = tokens_before_[i] + static_cast<double>(load.tokens);
    }
  }

  // Matches the runs of `strata` strata. Returns the sum of tokens of each step.
  std::vector<double> Match(int64_t strata, SplitMix random);
  // Time that ranks wait for the slowest of their row, in the encoder and in the language model,
  // summed over some of the steps. REQUIRES: Match() was called.
  double Waiting() const;
  // Appends the groups of each step of the last Match().
  void AppendSteps(std::vector<int64_t>& order) const;

 private:
  struct Run {
    int64_t begin, end;
    double tokens;
  };

  std::vector<Run> RunsOf(int64_t stratum, int64_t strata) const;
  void AppendStep(int64_t step, std::vector<int64_t>& order) const;
  double WaitingOfStep(int64_t step) const;

  std::vector<int64_t> sorted_;
  std::span<const LayerLoad> groups_;
  LoadCost cost_;
  int64_t steps_;
  std::vector<double> tokens_before_;  // prefix sums over sorted_
  std::vector<std::vector<Run>> runs_of_step_;
};

std::vector<Strata::Run> Strata::RunsOf(int64_t stratum, int64_t strata) const {
  const int64_t batch = std::ssize(sorted_) / steps_;
  const int64_t first = batch * stratum / strata, size = batch * (stratum + 1) / strata - first;
  std::vector<Run> runs;
  for (int64_t i = 0; i < steps_; ++i) {
    const int64_t begin = first * steps_ + i * size, end = begin + size;
    runs.push_back(
        {begin, end,
         tokens_before_[static_cast<size_t>(end)] - tokens_before_[static_cast<size_t>(begin)]});
  }
  return runs;
}

std::vector<double> Strata::Match(int64_t strata, SplitMix random) {
  std::vector<std::vector<Run>> all;
  for (int64_t i = 0; i < strata; ++i) {
    all.push_back(RunsOf(i, strata));
    // Runs of equal tokens go to steps at random.
    Shuffle(std::span(all.back()), random);
    std::sort(all.back().begin(), all.back().end(),
              [](const Run& a, const Run& b) { return a.tokens > b.tokens; });
  }
  // The strata whose runs differ most are first; later ones compensate.
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.front().tokens - a.back().tokens > b.front().tokens - b.back().tokens;
  });
  std::vector<double> sums(static_cast<size_t>(steps_), 0);
  std::vector<int64_t> by_sum = Indices(steps_);
  Shuffle(std::span(by_sum), random);
  runs_of_step_.assign(static_cast<size_t>(steps_), {});
  for (const std::vector<Run>& runs : all) {
    std::stable_sort(by_sum.begin(), by_sum.end(), [&](int64_t a, int64_t b) {
      return sums[static_cast<size_t>(a)] < sums[static_cast<size_t>(b)];
    });
    for (size_t i = 0; i < runs.size(); ++i) {
      const auto step = static_cast<size_t>(by_sum[i]);
      sums[step] += runs[i].tokens;
      runs_of_step_[step].push_back(runs[i]);
    }
  }
  return sums;
}

void Strata::AppendStep(int64_t step, std::vector<int64_t>& order) const {
  for (const Run& run : runs_of_step_[static_cast<size_t>(step)]) {
    order.insert(order.end(), sorted_.begin() + run.begin, sorted_.begin() + run.end);
  }
}

void Strata::AppendSteps(std::vector<int64_t>& order) const {
  for (int64_t step = 0; step < steps_; ++step) AppendStep(step, order);
}

double Strata::WaitingOfStep(int64_t step) const {
  std::vector<int64_t> members;
  AppendStep(step, members);
  std::vector<LayerLoad> loads;
  for (const int64_t group : members) loads.push_back(groups_[static_cast<size_t>(group)]);
  const std::vector<int64_t> sorted = SortedByLoad(loads, cost_);
  const size_t ranks = std::max<size_t>(sorted.size() / kRows, 1);
  double waiting = 0;
  for (size_t begin = 0; begin + ranks <= sorted.size(); begin += ranks) {
    double most_vision = 0, most_text = 0, sum = 0;
    for (size_t i = begin; i < begin + ranks; ++i) {
      const LayerLoad& load = loads[static_cast<size_t>(sorted[i])];
      const double time = cost_(load), vision = cost_.OfPictures(load);
      most_vision = std::max(most_vision, vision);
      most_text = std::max(most_text, time - vision);
      sum += time;
    }
    waiting += (most_vision + most_text) * static_cast<double>(ranks) - sum;
  }
  return waiting;
}

double Strata::Waiting() const {
  const int64_t batch = std::ssize(sorted_) / steps_;
  const int64_t sampled = std::clamp<int64_t>(kSampledGroups / batch, 1, steps_);
  double waiting = 0;
  for (int64_t i = 0; i < sampled; ++i) waiting += WaitingOfStep(steps_ * i / sampled);
  return waiting;
}

// Appends the steps whose ranks wait least among those that vary no more than allowed; where all
// vary more, those that vary least. `sorted`: by patches, then time.
void AppendBestSteps(const std::vector<int64_t>& sorted, std::span<const LayerLoad> groups,
                     const StepAssignmentOptions& options, SplitMix random,
                     std::vector<int64_t>& order) {
  const int64_t batch = options.global_batch, steps = std::ssize(sorted) / batch;
  const double allowed = options.token_spread / std::sqrt(static_cast<double>(batch));
  Strata by_time(sorted, groups, options.cost, steps);
  Strata by_patches(ShuffledWithinPatches(sorted, groups, random), groups, options.cost, steps);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Strata* best = &by_time;
  int64_t best_count = 1;
  double least_variation = kInfinity, least_waiting = kInfinity;
  const auto consider = [&](Strata& strata, int64_t count) {
    const double variation = Variation(strata.Match(count, random));
    const bool even = variation <= allowed;
    const double waiting = even ? strata.Waiting() : kInfinity;
    if (even ? waiting < least_waiting
             : least_waiting == kInfinity && variation < least_variation) {
      best = &strata;
      best_count = count;
      least_variation = variation;
      least_waiting = waiting;
    }
    return even;
  };
  // One stratum would give steps of heavy groups only, and of light ones. More strata than needed
  // make rows uneven.
  int64_t count = std::min<int64_t>(2, batch), next = 3;
  for (bool even = false; !even && count <= batch; next = 2 * std::exchange(count, next)) {
    consider(by_patches, count);
    even = consider(by_time, count);
  }
  best->Match(best_count, random);
  best->AppendSteps(order);
}

}  // namespace

std::vector<int64_t> AssignSteps(std::span<const LayerLoad> groups,
                                 const StepAssignmentOptions& options) {
  const int64_t count = std::ssize(groups), batch = options.global_batch;
  const int64_t head = std::min(options.head, count), steps = (count - head) / batch;
  const int64_t rest = count - head - steps * batch;
  SplitMix random = KeyedRandom(options.seed, static_cast<uint64_t>(options.epoch), kOrderPurpose);
  std::vector<int64_t> sorted = SortedByLoad(groups, options.cost);
  const auto middle = sorted.begin() + (count - head - rest) / 2;
  std::vector<int64_t> order(middle, middle + head + rest);
  sorted.erase(middle, middle + head + rest);
  Shuffle(std::span(order), random);
  const std::vector<int64_t> tail(order.begin() + head, order.end());
  order.resize(static_cast<size_t>(head));
  if (steps > 0) AppendBestSteps(sorted, groups, options, random, order);
  order.insert(order.end(), tail.begin(), tail.end());
  return order;
}

namespace {

// The order of rows 0 .. count - 1, ascending in time, that AssignRows() describes.
std::vector<int64_t> RowOrder(int64_t count) {
  std::vector<int64_t> order;
  if (count > 0) order.push_back(0);
  for (int64_t light = 2, heavy = count - 1; light <= heavy;) {
    order.push_back(heavy--);
    if (light <= heavy) order.push_back(light++);
  }
  if (count > 1) order.push_back(1);
  return order;
}

}  // namespace

std::vector<int64_t> AssignRows(std::span<const LayerLoad> groups, int64_t data_ranks,
                                const LoadCost& cost) {
  const std::vector<int64_t> sorted = SortedByLoad(groups, cost);
  const int64_t full_rows = std::ssize(groups) / data_ranks;
  std::vector<int64_t> rows = RowOrder(full_rows);
  if (std::ssize(groups) % data_ranks > 0) rows.push_back(full_rows);
  std::vector<double> busy(static_cast<size_t>(data_ranks), 0);
  std::vector<int64_t> order;
  for (const int64_t row : rows) {
    const int64_t begin = row * data_ranks;
    const int64_t size = std::min(data_ranks, std::ssize(groups) - begin);
    std::vector<int64_t> ranks = Indices(size);
    std::stable_sort(ranks.begin(), ranks.end(), [&](int64_t a, int64_t b) {
      return busy[static_cast<size_t>(a)] > busy[static_cast<size_t>(b)];
    });
    order.resize(order.size() + static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      const int64_t group = sorted[static_cast<size_t>(begin + i)];
      const auto rank = static_cast<size_t>(ranks[static_cast<size_t>(i)]);
      busy[rank] += cost(groups[static_cast<size_t>(group)]);
      order[order.size() - static_cast<size_t>(size) + rank] = group;
    }
  }
  return order;
}

}  // namespace equipoise
