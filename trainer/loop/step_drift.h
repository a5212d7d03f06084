#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace equipoise {

// Seconds of one rank's optimizer step, predicted or measured.
struct RankSeconds {
  double step_s = 0;
  double passes_s = 0;     // forward and backward from begin to end, with the sum of the gradients
  double compute_s = 0;    // of the passes; without waiting for data or for other ranks
  double data_wait_s = 0;  // of the passes; never predicted
};

struct RankTimes {
  RankSeconds measured, predicted;
};

enum class DriftCause {
  kData,      // waiting for the loader
  kSlowRank,  // one rank computes slower than the others, by the prediction
  kCompute,   // all ranks compute at another speed than predicted
  kWaiting,   // transfers, sums of gradients, bubbles
  kUpdate,    // all of a step behind its passes: optimizer, what ranks agree on
};

// A step that does not take what was predicted, and what most of the difference comes from.
struct Drift {
  DriftCause cause = DriftCause::kCompute;
  int rank = -1;                           // of kData and kSlowRank: which one
  double measured_s = 0, predicted_s = 0;  // the step's
  double cause_s = 0;                      // its part in the difference
  double slowdown =
      1;              // of computing beside its prediction: of `rank` with kSlowRank, else typical
  double others = 1;  // the same of the other ranks, with kSlowRank
  bool slower() const { return measured_s > predicted_s; }
};

// The shortest difference that counts, as a share of the prediction: p10 to p90 of a normal
// distribution whose standard deviation is `error_band`, and 5 % at least, which is how well steps
// are predicted at best.
double DriftLimit(double error_band);

// Compares all ranks' steps. Nothing where the longest is within the limit of the longest predicted
// one. Of the causes the one is named that makes up most of the difference: a rank counts as slow
// by what it computes beyond the ranks' lower median ratio to the prediction; waiting and update
// are those of the rank that waits least, since the others wait for it. Pure.
std::optional<Drift> FindDrift(const std::vector<RankTimes>& ranks, double error_band);

// One line: how much, the likely cause, what to do.
std::string Describe(const Drift& drift, double error_band);

inline constexpr int kStepsOfWindow = 10;

// Watches the steps of this rank for a drift: medians over windows of steps, after the first ones.
// Every rank must add the same steps.
class DriftMonitor {
 public:
  DriftMonitor() = default;
  explicit DriftMonitor(double error_band) : error_band_(error_band) {}

  // Adds a step; the medians of a window when this step fills one.
  std::optional<RankTimes> Add(const RankTimes& step);
  // The line to warn with about such a window of all ranks. Nothing where there is no drift, or it
  // was told in the last 500 steps already.
  std::optional<std::string> Judge(const std::vector<RankTimes>& ranks);

 private:
  double error_band_ = 0;
  int64_t steps_ = 0;
  std::vector<RankTimes> window_;
  std::map<std::string, int64_t> told_;  // by kind of drift: after which step
};

}  // namespace equipoise
