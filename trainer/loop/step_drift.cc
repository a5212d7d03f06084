#include "trainer/loop/step_drift.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "balance/search/plan_forecast.h"

namespace equipoise {
namespace {

// The difference between a step and its prediction is attributed to five causes, in seconds each:
// the longest wait for data; the longest computing beyond the median slowdown (one slow rank); the
// median slowdown itself over the longest passes; the waiting between ranks and the update, each of
// the rank that has least of it, as on the others waiting for that rank is included. The cause with
// the most seconds is reported, or with the fewest where the step was faster. O(ranks).

constexpr double kLeastLimit = 0.05;
constexpr int64_t kFirstSteps = 5;     // caches, threads and connections are not warm
constexpr int64_t kReportAgain = 500;  // steps

// The lower one of the two middle values. REQUIRES: a value.
double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Measured by predicted seconds of computing.
double Slowdown(const RankTimes& rank) {
  return rank.predicted.compute_s > 0 ? rank.measured.compute_s / rank.predicted.compute_s : 1;
}

double Waiting(const RankSeconds& rank) {
  return rank.passes_s - rank.compute_s - rank.data_wait_s;
}

double Update(const RankSeconds& rank) { return rank.step_s - rank.passes_s; }

RankSeconds Medians(const std::vector<RankTimes>& steps, RankSeconds RankTimes::*part) {
  const auto of = [&](double RankSeconds::*field) {
    std::vector<double> values;
    values.reserve(steps.size());
    for (const RankTimes& step : steps) values.push_back(step.*part.*field);
    return Median(std::move(values));
  };
  return {of(&RankSeconds::step_s), of(&RankSeconds::passes_s), of(&RankSeconds::compute_s),
          of(&RankSeconds::data_wait_s)};
}

// Each cause's share of the difference between the step and its prediction.
std::vector<Drift> Causes(const std::vector<RankTimes>& ranks, const Drift& whole) {
  std::vector<double> slowdowns;
  slowdowns.reserve(ranks.size());
  for (const RankTimes& rank : ranks) slowdowns.push_back(Slowdown(rank));
  const double typical = Median(slowdowns);
  Drift data = whole, slow = whole, compute = whole, waiting = whole, update = whole;
  data.cause = DriftCause::kData;
  slow.cause = DriftCause::kSlowRank;
  compute.cause = DriftCause::kCompute;
  waiting.cause = DriftCause::kWaiting;
  update.cause = DriftCause::kUpdate;
  double passes_s = 0;
  waiting.cause_s = update.cause_s = std::numeric_limits<double>::infinity();
  data.cause_s = slow.cause_s = -1;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto& [measured, predicted] = ranks[i];
    passes_s = std::max(passes_s, predicted.passes_s);
    if (measured.data_wait_s > data.cause_s) {
      data.cause_s = measured.data_wait_s;
      data.rank = static_cast<int>(i);
    }
    const double beyond = measured.compute_s - typical * predicted.compute_s;
    if (beyond > slow.cause_s) {
      slow.cause_s = beyond;
      slow.rank = static_cast<int>(i);
      slow.slowdown = slowdowns[i];
    }
    // Bubbles grow with the seconds of computing.
    waiting.cause_s =
        std::min(waiting.cause_s, Waiting(measured) - std::max(1.0, typical) * Waiting(predicted));
    update.cause_s = std::min(update.cause_s, Update(measured) - Update(predicted));
  }
  slow.others = compute.slowdown = typical;
  compute.cause_s = (typical - 1) * passes_s;
  return {data, slow, compute, waiting, update};
}

std::string CauseText(const Drift& d) {
  switch (d.cause) {
    case DriftCause::kData:
      return fmt::format(
          "rank {} waits {:.3g} s of each step for data; raise data.threads or data.prefetch, or "
          "look at its disk",
          d.rank, d.cause_s);
    case DriftCause::kSlowRank:
      return fmt::format(
          "rank {} computes {:.2f} times as long as predicted, the others {:.2f} times; look for "
          "other work on its machine, or a slower device",
          d.rank, d.slowdown, d.others);
    case DriftCause::kCompute:
      return fmt::format(
          "ranks compute {:.2f} times as long as predicted; {} measure a profile with `equipoise "
          "profile` and name it in cluster.profile",
          d.slowdown, d.slower() ? "look for other work on the machines, or" : "to plan with it,");
    case DriftCause::kWaiting:
      return fmt::format(
          "waiting for transfers and sums between ranks takes {:.3g} s {} than predicted; {} the "
          "links of `cluster`",
          std::fabs(d.cause_s), d.cause_s > 0 ? "more" : "less",
          d.slower() ? "look at the network, or correct" : "correct");
    case DriftCause::kUpdate:
      return fmt::format(
          "the optimizer and what the ranks agree on take {:.3g} s {} than predicted; a profile "
          "measures the optimizer",
          std::fabs(d.cause_s), d.cause_s > 0 ? "more" : "less");
  }
  return "";
}

}  // namespace

double DriftLimit(double error_band) {
  return std::max(kLeastLimit, kTenthPercentile * error_band);
}

std::optional<Drift> FindDrift(const std::vector<RankTimes>& ranks, double error_band) {
  Drift whole;
  for (const RankTimes& rank : ranks) {
    whole.measured_s = std::max(whole.measured_s, rank.measured.step_s);
    whole.predicted_s = std::max(whole.predicted_s, rank.predicted.step_s);
  }
  const double difference = whole.measured_s - whole.predicted_s;
  if (whole.predicted_s <= 0) return std::nullopt;
  if (std::fabs(difference) <= DriftLimit(error_band) * whole.predicted_s) return std::nullopt;
  const std::vector<Drift> causes = Causes(ranks, whole);
  const auto less = [](const Drift& a, const Drift& b) { return a.cause_s < b.cause_s; };
  return difference > 0 ? *std::max_element(causes.begin(), causes.end(), less)
                        : *std::min_element(causes.begin(), causes.end(), less);
}

std::string Describe(const Drift& d, double error_band) {
  return fmt::format(
             "steps take {:.4g} s, {:.0f} % {} than the predicted {:.4g} s (error band {:.0f} %): ",
             d.measured_s, 100 * std::fabs(d.measured_s / d.predicted_s - 1),
             d.slower() ? "more" : "less", d.predicted_s, 100 * DriftLimit(error_band)) +
         CauseText(d);
}

std::optional<RankTimes> DriftMonitor::Add(const RankTimes& step) {
  if (++steps_ <= kFirstSteps) return std::nullopt;
  window_.push_back(step);
  if (window_.size() < kStepsOfWindow) return std::nullopt;
  const RankTimes medians{Medians(window_, &RankTimes::measured),
                          Medians(window_, &RankTimes::predicted)};
  window_.clear();
  return medians;
}

std::optional<std::string> DriftMonitor::Judge(const std::vector<RankTimes>& ranks) {
  const std::optional<Drift> drift = FindDrift(ranks, error_band_);
  if (!drift) return std::nullopt;
  const std::string kind = fmt::format("{} {} {}", static_cast<int>(drift->cause), drift->rank,
                                       static_cast<int>(drift->slower()));
  const auto reported = reported_.find(kind);
  if (reported != reported_.end() && steps_ - reported->second < kReportAgain) return std::nullopt;
  reported_[kind] = steps_;
  return Describe(*drift, error_band_);
}

}  // namespace equipoise
