#include "trainer/loop/step_drift.h"

#include <catch2/catch.hpp>

namespace equipoise {
namespace {

constexpr double kBand = 0.04;  // its limit: 5.1 %

// Four ranks that take what was predicted: 1 s, of it 0.9 s of passes and 0.7 s of computing.
std::vector<RankTimes> AsPredicted() {
  const RankSeconds seconds{1.0, 0.9, 0.7, 0};
  return std::vector<RankTimes>(4, {seconds, seconds});
}

// All ranks end a step together: what one does longer, the others wait for.
std::vector<RankTimes> Longer(double seconds) {
  std::vector<RankTimes> ranks = AsPredicted();
  for (RankTimes& rank : ranks) {
    rank.measured.step_s += seconds;
    rank.measured.passes_s += seconds;
  }
  return ranks;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a step within the error band is no drift", "[step_drift][cpu]") {
  CHECK_FALSE(FindDrift(AsPredicted(), kBand));
  CHECK_FALSE(FindDrift(Longer(0.05), kBand));
  CHECK(FindDrift(Longer(0.06), kBand));
  CHECK(FindDrift(Longer(-0.06), kBand));
  CHECK_FALSE(FindDrift(Longer(0.06), 0.15));
  CHECK(DriftLimit(0) == 0.05);
  CHECK(DriftLimit(0.1) == Approx(0.12816));
  std::vector<RankTimes> unknown = AsPredicted();
  for (RankTimes& rank : unknown) rank.predicted = {};
  CHECK_FALSE(FindDrift(unknown, kBand));
}

TEST_CASE("a rank that waits for data is named", "[step_drift][cpu]") {
  std::vector<RankTimes> ranks = Longer(0.3);
  ranks[2].measured.data_wait_s = 0.3;
  ranks[1].measured.data_wait_s = 0.1;
  const Drift drift = FindDrift(ranks, kBand).value();
  CHECK(drift.cause == DriftCause::kData);
  CHECK(drift.rank == 2);
  CHECK(drift.cause_s == Approx(0.3));
  CHECK(Describe(drift, kBand) ==
        "steps take 1.3 s, 30 % more than the predicted 1 s (error band 5 %): rank 2 waits 0.3 s "
        "of each step for data; raise data.threads or data.prefetch, or look at its disk");
}

TEST_CASE("a slow rank is named, also one of two and one with less to do", "[step_drift][cpu]") {
  std::vector<RankTimes> ranks = Longer(0.35);
  ranks[3].measured.compute_s = 1.05;
  Drift drift = FindDrift(ranks, kBand).value();
  CHECK(drift.cause == DriftCause::kSlowRank);
  CHECK(drift.rank == 3);
  CHECK(Has(Describe(drift, kBand),
            "rank 3 computes 1.50 times as long as predicted, the others 1.00 times"));
  ranks.erase(ranks.begin(), ranks.begin() + 2);
  CHECK(FindDrift(ranks, kBand).value().rank == 1);
  CHECK(FindDrift(ranks, kBand).value().cause == DriftCause::kSlowRank);
  // Uneven stages are predicted: this rank computes least and is slow all the same.
  ranks = Longer(0.3);
  ranks[1].predicted.compute_s = 0.3;
  ranks[1].measured.compute_s = 0.6;
  drift = FindDrift(ranks, kBand).value();
  CHECK(drift.rank == 1);
  CHECK(drift.slowdown == Approx(2));
}

TEST_CASE("computing that is slower or faster everywhere is told from a slow rank",
          "[step_drift][cpu]") {
  for (const double factor : {2.0, 0.5}) {
    std::vector<RankTimes> ranks = AsPredicted();
    for (RankTimes& rank : ranks) {
      rank.measured.passes_s *= factor;
      rank.measured.compute_s *= factor;
      rank.measured.step_s += rank.measured.passes_s - rank.predicted.passes_s;
    }
    ranks[0].measured.compute_s *= 1.02;
    const Drift drift = FindDrift(ranks, kBand).value();
    CHECK(drift.cause == DriftCause::kCompute);
    CHECK(drift.slower() == (factor > 1));
    CHECK(drift.slowdown == Approx(factor));
    CHECK(Has(Describe(drift, kBand), factor > 1 ? "90 % more" : "45 % less"));
    CHECK(Has(Describe(drift, kBand), "equipoise profile"));
  }
}

TEST_CASE("waiting counts where no rank explains it by being late", "[step_drift][cpu]") {
  Drift drift = FindDrift(Longer(0.2), kBand).value();
  CHECK(drift.cause == DriftCause::kWaiting);
  CHECK(drift.cause_s == Approx(0.2));
  CHECK(Has(Describe(drift, kBand), "takes 0.2 s more than predicted"));
  drift = FindDrift(Longer(-0.15), kBand).value();
  CHECK(drift.cause == DriftCause::kWaiting);
  CHECK(Has(Describe(drift, kBand), "takes 0.15 s less than predicted"));
}

TEST_CASE("what comes behind the passes is the update", "[step_drift][cpu]") {
  std::vector<RankTimes> ranks = AsPredicted();
  for (RankTimes& rank : ranks) rank.measured.step_s += 0.4;
  const Drift drift = FindDrift(ranks, kBand).value();
  CHECK(drift.cause == DriftCause::kUpdate);
  CHECK(drift.cause_s == Approx(0.4));
  CHECK(Has(Describe(drift, kBand), "optimizer"));
}

// The windows that a run of so many equal steps fills, judged as if all ranks were alike.
std::vector<std::string> Told(DriftMonitor& monitor, const std::vector<RankTimes>& ranks,
                              int steps) {
  std::vector<std::string> lines;
  for (int step = 0; step < steps; ++step) {
    if (!monitor.Add(ranks[0])) continue;
    if (const auto line = monitor.Judge(ranks)) lines.push_back(*line);
  }
  return lines;
}

TEST_CASE("a window has the medians of ten steps, the first five left out", "[step_drift][cpu]") {
  DriftMonitor monitor(kBand);
  RankTimes step = AsPredicted()[0];
  for (int i = 0; i < 14; ++i) {
    step.measured.step_s = i < 5 ? 1000 : i == 9 ? 500 : i;  // start-up, and one hiccup
    REQUIRE_FALSE(monitor.Add(step));
  }
  step.measured.step_s = 14;
  const std::optional<RankTimes> window = monitor.Add(step);
  REQUIRE(window);
  CHECK(window->measured.step_s == 10);  // the lower middle one of 5 to 8, 10 to 14 and 500
  CHECK(window->predicted.compute_s == 0.7);
  CHECK_FALSE(monitor.Add(step));
}

TEST_CASE("a drift is told once, a new cause at once, the same again much later",
          "[step_drift][cpu]") {
  DriftMonitor monitor(kBand);
  CHECK(Told(monitor, AsPredicted(), 100).empty());
  CHECK(Told(monitor, Longer(0.2), 400).size() == 1);
  std::vector<RankTimes> data = Longer(0.3);
  data[2].measured.data_wait_s = 0.3;
  CHECK(Told(monitor, data, 50).size() == 1);
  CHECK(Told(monitor, Longer(0.2), 40).empty());
  CHECK(Told(monitor, Longer(0.2), 40).size() == 1);  // more than 500 steps after the first
  CHECK(Told(monitor, AsPredicted(), 100).empty());
}

}  // namespace
}  // namespace equipoise
