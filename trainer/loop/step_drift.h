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
  double passes_s = 0;     // forward and backward, with the reduction of the gradients
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
  kWaiting,   // transfers, reductions of gradients, bubbles
  kUpdate,    // the rest of a step after its passes: optimizer, agreement of the ranks
};

// Deviation of a step's time from its prediction, and the cause of most of it.
struct Drift {
  DriftCause cause = DriftCause::kCompute;
  int rank = -1;                           // of kData and kSlowRank: which one
  double measured_s = 0, predicted_s = 0;  // the step's
  double cause_s = 0;                      // the cause's share of the difference
  // Measured by predicted seconds of computing: of `rank` with kSlowRank, else the median rank's.
  double slowdown = 1;
  double others = 1;  // likewise of the other ranks, with kSlowRank
  bool slower() const { return measured_s > predicted_s; }
};

// The smallest difference that is a drift, as a share of the prediction: p10 to p90 of a normal
// distribution whose standard deviation is `error_band`, and at least 5 %, the accuracy of the best
// predictions.
double DriftLimit(double error_band);

// The drift of a step, given all ranks' times; nothing where the longest step is within
// DriftLimit() of the longest predicted one. The cause is the one that makes up most of the
// difference: a rank counts as slow by its seconds of computing beyond the ranks' lower median
// ratio to the prediction; waiting and update are those of the rank that waits least, since the
// others wait for it. Pure.
std::optional<Drift> FindDrift(const std::vector<RankTimes>& ranks, double error_band);

// One line: the difference, its likely cause, what to do.
std::string Describe(const Drift& drift, double error_band);

inline constexpr int kStepsOfWindow = 10;

// Detector of drifts: medians over windows of this rank's steps, after the first few. Every rank
// must add the same steps.
class DriftMonitor {
 public:
  DriftMonitor() = default;
  explicit DriftMonitor(double error_band) : error_band_(error_band) {}

  // Adds a step; returns the window's medians when this step fills one.
  std::optional<RankTimes> Add(const RankTimes& step);
  // The warning for such a window of all ranks; nothing where there is no drift, or it was
  // reported in the last 500 steps.
  std::optional<std::string> Judge(const std::vector<RankTimes>& ranks);

 private:
  double error_band_ = 0;
  int64_t steps_ = 0;
  std::vector<RankTimes> window_;
  std::map<std::string, int64_t> reported_;  // by kind of drift: after which step
};

}  // namespace equipoise
