#include "trainer/loop/straggler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace equipoise {
namespace {

// A rank's pace is measured seconds of computing by predicted ones, so the unit of the prediction
// cancels when paces are compared. A rank is slow in a window when its pace is kSlow times the
// median pace of the other ranks with the same layers. Where no other rank has them, its change of
// pace since the first kWindows windows takes the place of the pace, compared with the change of
// all others. A rank becomes a straggler after kWindows slow windows in a row, so that a short
// disturbance is not reported. O(ranks^2) a window.

constexpr double kSlow = 1.25;    // larger than the error of predictions
constexpr size_t kWindows = 3;    // slow ones in a row of a straggler; also of the first pace
constexpr int kReportAgain = 50;  // windows

// The lower one of the two middle values; 0 of an empty list.
double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Measured by predicted seconds of computing; 0 where either is unknown.
double Pace(const RankTimes& rank) {
  const bool known = rank.predicted.compute_s > 0 && rank.measured.compute_s > 0;
  return known ? rank.measured.compute_s / rank.predicted.compute_s : 0;
}

// Median over the other ranks for which `counts` is true and the value is known.
template <class Counts>
double MedianOfOthers(const std::vector<double>& values, size_t rank, const Counts& counts) {
  std::vector<double> others;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i != rank && values[i] > 0 && counts(i)) others.push_back(values[i]);
  }
  return Median(std::move(others));
}

const Straggler* Find(const std::vector<Straggler>& slow, int rank) {
  const auto found =
      std::find_if(slow.begin(), slow.end(), [rank](const Straggler& s) { return s.rank == rank; });
  return found == slow.end() ? nullptr : &*found;
}

}  // namespace

std::vector<Straggler> StragglerWatch::SlowRanks(const std::vector<double>& pace) const {
  std::vector<double> change(pace.size(), 0);
  for (size_t i = 0; i < base_.size(); ++i) change[i] = base_[i] > 0 ? pace[i] / base_[i] : 0;
  std::vector<Straggler> slow;
  for (size_t i = 0; i < pace.size(); ++i) {
    const double equals =
        MedianOfOthers(pace, i, [&](size_t other) { return layers_[other] == layers_[i]; });
    const double others = MedianOfOthers(change, i, [](size_t) { return true; });
    // Others that have become faster do not make this rank slow.
    const double by_change = others > 0 ? change[i] / std::max(1.0, others) : 0;
    const double slowdown = equals > 0 ? pace[i] / equals : by_change;
    if (slowdown >= kSlow) slow.push_back({static_cast<int>(i), slowdown, equals > 0});
  }
  return slow;
}

void StragglerWatch::SetBase(const std::vector<double>& pace) {
  if (first_.size() == kWindows) return;
  first_.push_back(pace);
  if (first_.size() < kWindows) return;
  for (size_t rank = 0; rank < pace.size(); ++rank) {
    std::vector<double> values;
    values.reserve(first_.size());
    for (const std::vector<double>& window : first_) values.push_back(window[rank]);
    base_.push_back(Median(std::move(values)));
  }
}

std::vector<Straggler> StragglerWatch::Add(const std::vector<RankTimes>& ranks) {
  std::vector<double> pace;
  pace.reserve(ranks.size());
  for (const RankTimes& rank : ranks) pace.push_back(Pace(rank));
  ++windows_;
  reported_.resize(ranks.size(), 0);
  last_.push_back(SlowRanks(pace));
  if (last_.size() > kWindows) last_.erase(last_.begin());
  SetBase(pace);
  if (last_.size() < kWindows) return {};
  std::vector<Straggler> stragglers;
  for (Straggler named : last_.back()) {
    bool always = true;
    for (const std::vector<Straggler>& window : last_) {
      const Straggler* there = Find(window, named.rank);
      always = always && there != nullptr;
      if (there != nullptr) named.slowdown = std::min(named.slowdown, there->slowdown);
    }
    int& reported = reported_[static_cast<size_t>(named.rank)];
    if (!always || (reported > 0 && windows_ - reported < kReportAgain)) continue;
    reported = windows_;
    stragglers.push_back(named);
  }
  return stragglers;
}

std::string Describe(const Straggler& straggler, const std::vector<std::string>& hosts) {
  return fmt::format(
      "rank {} on {} computes {:.2f} times as long for the same work as {}, over the last {} "
      "steps; all ranks wait for it: look for other work on that machine, or a slower or throttled "
      "device",
      straggler.rank, hosts[static_cast<size_t>(straggler.rank)], straggler.slowdown,
      straggler.among_equals ? "the other ranks with its layers"
                             : "at the start of the run, which the other ranks do not",
      kWindows * kStepsOfWindow);
}

}  // namespace equipoise
