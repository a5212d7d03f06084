#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainer/loop/step_drift.h"

namespace equipoise {

// A rank that computes slower than others do for as much work.
struct Straggler {
  int rank = 0;
  double slowdown = 1;        // seconds for a unit of work, as a multiple of the reference's
  bool among_equals = false;  // reference: the ranks with the same layers; else its first windows

  bool operator==(const Straggler&) const = default;
};

// Detector of slow ranks that needs no profile: it compares ranks with each other, one window of
// steps after another. The measure of a rank's work is its predicted seconds of computing, of any
// scale. Ranks with the same layers are compared directly; a rank whose layers no other rank has
// is compared by how its speed has changed since the first windows, because predictions for
// different kinds of layers are not exact against each other. Every rank sees the same windows and
// finds the same stragglers.
class StragglerWatch {
 public:
  StragglerWatch() = default;
  // layers[r]: an id of the layers that rank r has; equal for ranks with the same layers.
  explicit StragglerWatch(std::vector<int> layers) : layers_(std::move(layers)) {}

  // The ranks that were slow in each of the last few windows, with the smallest slowdown of these
  // windows. A rank is reported again only after many windows. `ranks`: every rank's medians over
  // a window.
  std::vector<Straggler> Add(const std::vector<RankTimes>& ranks);

 private:
  std::vector<Straggler> SlowRanks(const std::vector<double>& pace) const;
  void SetBase(const std::vector<double>& pace);

  std::vector<int> layers_;
  int windows_ = 0;
  std::vector<std::vector<double>> first_;    // paces of the first windows
  std::vector<double> base_;                  // their medians
  std::vector<std::vector<Straggler>> last_;  // slow ranks of the last windows
  std::vector<int> reported_;                 // by rank: the window when last; 0: never
};

// One line, "rank 3 on node7 computes 1.62 times as long ...: what to do". `hosts`: the machine of
// each rank.
std::string Describe(const Straggler& straggler, const std::vector<std::string>& hosts);

}  // namespace equipoise
