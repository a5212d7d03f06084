#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainer/loop/step_drift.h"

namespace equipoise {

// A rank that computes slower than others do for as much work.
struct Straggler {
  int rank = 0;
  double slowdown = 1;        // its seconds for a unit of work, as a multiple of the others'
  bool among_equals = false;  // of the ranks with the same layers; else of its own first windows

  bool operator==(const Straggler&) const = default;
};

// Compares ranks with each other, window of steps after window, without a profile: the measure of
// their work is predicted seconds of computing, of any scale. Ranks with the same layers are
// compared as they are; a rank that has none of these by how its speed has changed since the first
// windows, as one kind of layer is not predicted exactly against another. Every rank sees the same
// windows and finds the same.
class StragglerWatch {
 public:
  StragglerWatch() = default;
  // layers[r]: a number of the layers that rank r has; equal for equal ones.
  explicit StragglerWatch(std::vector<int> layers) : layers_(std::move(layers)) {}

  // The ranks that have been slow in each of the last few windows, with the least slowdown of
  // these. A rank is told again only after a long time. `ranks`: the medians of a window of every
  // rank.
  std::vector<Straggler> Add(const std::vector<RankTimes>& ranks);

 private:
  std::vector<Straggler> SlowRanks(const std::vector<double>& pace) const;
  void SetBase(const std::vector<double>& pace);

  std::vector<int> layers_;
  int windows_ = 0;
  std::vector<std::vector<double>> first_;    // paces of the first windows
  std::vector<double> base_;                  // their medians
  std::vector<std::vector<Straggler>> last_;  // slow ranks of the last windows
  std::vector<int> told_;                     // by rank: in which window; 0: never
};

// "rank 3 on node7 computes 1.62 times as long ...: what to do". `hosts`: the machine of each rank.
std::string Describe(const Straggler& straggler, const std::vector<std::string>& hosts);

}  // namespace equipoise
