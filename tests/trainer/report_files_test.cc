#include "trainer/outputs/report_files.h"

#include <catch2/catch.hpp>

#include "configs/base/error.h"
#include "data/records/quarantine.h"
#include "tests/trainer/scratch_folder.h"

namespace equipoise {
namespace {

TEST_CASE("a report is made of what the run folder holds", "[report][cpu]") {
  const ScratchFolder scratch;
  WriteText(scratch.Path("config.yaml"), "train: {steps: 2}\n");
  StepMetrics metrics;
  metrics.step = 2;
  metrics.loss = 0.25;
  MetricsWriter(scratch.Path("metrics.jsonl")).Write(metrics);
  Quarantine(scratch.Path("quarantine.jsonl"))
      .Add({4, "train.jsonl", 17, "cat", "truncated JPEG"}, 3, /*rank=*/1);
  const ReportInput input = ReadReportInput(scratch.path());
  CHECK(input.title == scratch.path());
  CHECK(input.config == "train: {steps: 2}\n");
  REQUIRE(input.steps.size() == 1);
  CHECK(input.steps[0].loss == 0.25);
  REQUIRE(input.quarantine.size() == 1);
  CHECK(input.quarantine[0].file == "train.jsonl");
  CHECK(input.quarantine[0].line == 17);
  CHECK(input.quarantine[0].id == "cat");
  CHECK(input.quarantine[0].reason == "truncated JPEG");
  WriteReport(scratch.path(), input);
  CHECK(ReadText(scratch.Path("report.html")) == RenderReport(input));
}

TEST_CASE("an empty or torn run folder still has a report", "[report][cpu]") {
  const ScratchFolder scratch;
  WriteText(scratch.Path("quarantine.jsonl"), "{\"line\":\"x\",\"id\":3}\n[]\n{\"fi");
  const ReportInput input = ReadReportInput(scratch.path());
  CHECK(input.steps.empty());
  CHECK(input.quarantine.size() == 1);
  CHECK_NOTHROW(WriteReport(scratch.path(), input));
  CHECK_THROWS_AS(WriteReport(scratch.Path("absent"), input), RunError);
}

}  // namespace
}  // namespace equipoise
