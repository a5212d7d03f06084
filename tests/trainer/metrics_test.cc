#include "trainer/outputs/metrics.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "tests/trainer/scratch_folder.h"

namespace equipoise {
namespace {

TEST_CASE("a metrics line holds what is known, with nine significant digits", "[metrics][cpu]") {
  StepMetrics metrics;
  metrics.step = 7;
  CHECK(MetricsLine(metrics) == R"({"step":7})");
  metrics.loss = 1.0 / 3;
  metrics.lr = 1e-4;
  metrics.tokens = 123456789012;
  metrics.skipped_samples = 0;
  CHECK(MetricsLine(metrics) ==
        R"({"step":7,"loss":0.333333333,"lr":0.0001,"tokens":123456789012,"skipped_samples":0})");
}

TEST_CASE("the keys are those of the contract, in its order", "[metrics][cpu]") {
  std::string keys;
  StepMetrics metrics;
  StepMetrics::VisitFields(metrics, [&](const char* name, auto& field) {
    keys += std::string(name) + " ";
    field = 1;
  });
  CHECK(keys ==
        "epoch loss grad_norm lr loss_scale tokens samples images step_s tokens_per_s mfu "
        "mem_peak_bytes mem_reserved_bytes rss_peak_bytes data_wait_s pause_s checkpoint_s outer_s "
        "bubble_share "
        "predicted_step_s pad_ratio fill_share "
        "dist_ratio_vision dist_ratio_text skipped_samples eval_loss ");
  CHECK(Json::parse(MetricsLine(metrics)).size() == 27);
}

TEST_CASE("scores of answers are an object a set", "[metrics][cpu]") {
  StepMetrics metrics;
  metrics.step = 7;
  metrics.answers = {{"doc \"a\"", {{"anls", 0.25}, {"exact", 0}}}, {"chart", {{"anls", 1.0 / 3}}}};
  const std::string line = MetricsLine(metrics);
  CHECK(
      line ==
      R"({"step":7,"answers":{"chart":{"anls":0.333333333},"doc \"a\"":{"anls":0.25,"exact":0}}})");
  const ScratchFolder scratch;
  MetricsWriter(scratch.Path("metrics.jsonl")).Write(metrics);
  const auto read = ReadMetrics(scratch.Path("metrics.jsonl"));
  REQUIRE(read.size() == 1);
  CHECK(read[0].answers.at("doc \"a\"") == metrics.answers.at("doc \"a\""));
  CHECK(read[0].answers.at("chart").at("anls") == Approx(1.0 / 3));
}

TEST_CASE("numbers that are not finite stay valid JSON", "[metrics][cpu]") {
  StepMetrics metrics;
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.grad_norm = -std::numeric_limits<double>::infinity();
  CHECK(MetricsLine(metrics) == R"({"step":0,"loss":null,"grad_norm":null})");
}

TEST_CASE("what is written is read back, torn lines are passed over", "[metrics][cpu]") {
  const ScratchFolder scratch;
  const std::string path = scratch.Path("metrics.jsonl");
  for (int64_t step = 1; step <= 3; ++step) {  // opened anew each time: appends
    MetricsWriter writer(path);
    StepMetrics metrics;
    metrics.step = step;
    metrics.loss = step == 2 ? std::nan("") : 0.5 * static_cast<double>(step);
    metrics.samples = 10 * step;
    writer.Write(metrics);
  }
  std::ofstream(path, std::ios::app) << "{\"step\":4,\"lo";
  const std::vector<StepMetrics> steps = ReadMetrics(path);
  REQUIRE(steps.size() == 3);
  CHECK(steps[0].loss == 0.5);
  CHECK(std::isnan(*steps[1].loss));
  CHECK(steps[2].samples == 30);
  CHECK_FALSE(steps[2].lr.has_value());
  CHECK(ReadMetrics(scratch.Path("absent.jsonl")).empty());
}

TEST_CASE("a full disk ends the run", "[metrics][cpu]") {
  MetricsWriter writer("/dev/full");
  CHECK_THROWS_AS(writer.Write({}), RunError);
  CHECK_THROWS_AS(MetricsWriter("/proc/no/such/folder/metrics.jsonl"), RunError);
}

}  // namespace
}  // namespace equipoise
