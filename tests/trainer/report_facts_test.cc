#include "trainer/outputs/report_facts.h"

#include <catch2/catch.hpp>
#include <string>

namespace equipoise {
namespace {

RunSummary Sample() {
  RunSummary run;
  run.command = "equipoise train a.yaml";
  run.finished = "2026-11-22 21:50 UTC";
  run.wall_s = 125;
  run.plan = "data 2 x pipeline 1 x tensor 1";
  run.precision = "bf16";
  run.parameters = 10'844'544;
  run.tokens = 1'095'104;
  run.ranks = {{"node1", "AMD EPYC", 1 << 20, 2 << 20, 3 << 20},
               {"node1", "AMD EPYC", 1 << 20, 2 << 20, 3 << 20},
               {"node2", "NVIDIA H200", 0, 2 << 20, 3 << 20}};
  return run;
}

std::string Fact(const RunSummary& run, const std::vector<StepMetrics>& steps,
                 const std::string& name) {
  for (const auto& [key, value] : RunFacts(run, steps)) {
    if (key.find(name) != std::string::npos) return value;
  }
  return "absent";
}

TEST_CASE("the line below the title says when, where and for how long", "[report][cpu]") {
  RunSummary run = Sample();
  CHECK(RunLead(run) ==
        "2026-11-22 21:50 UTC \u00b7 2 ranks on node1 (AMD EPYC); 1 rank on node2 (NVIDIA H200) "
        "\u00b7 2m05s");
  run.first_step = 1100;
  CHECK(RunLead(run).ends_with("2m05s since the restart at step 1100"));
}

TEST_CASE("facts: command, date, machine, time, plan, precision, counts", "[report][cpu]") {
  RunSummary run = Sample();
  CHECK(Fact(run, {}, "command") == "equipoise train a.yaml");
  CHECK(Fact(run, {}, "finished") == "2026-11-22 21:50 UTC");
  CHECK(Fact(run, {}, "wall time") == "2m05s");
  CHECK(Fact(run, {}, "precision") == "bf16");
  CHECK(Fact(run, {}, "plan") == "data 2 x pipeline 1 x tensor 1");
  CHECK(Fact(run, {}, "parameters") == "10,844,544");
  CHECK(Fact(run, {}, "tokens") == "1,095,104");
  run.first_step = 12;
  CHECK(Fact(run, {}, "wall time") == "2m05s, from step 13 on");
}

TEST_CASE("facts: MFU, prediction and balance are means over the steps that know them",
          "[report][cpu]") {
  RunSummary run = Sample();
  std::vector<StepMetrics> steps(3);
  CHECK(Fact(run, steps, "MFU").find("cluster.peak_tflops") != std::string::npos);
  CHECK(Fact(run, steps, "predicted").find("cluster.profile") != std::string::npos);
  CHECK(Fact(run, steps, "(pad)") == "absent");
  CHECK(Fact(run, steps, "bubble") == "absent");
  steps[0].pad_ratio = 0.25;
  steps[1].pad_ratio = 0.5;
  steps[2].fill_share = 0.96;
  steps[1].mfu = 0.432;
  steps[2].dist_ratio_vision = 0.004;
  steps[2].dist_ratio_text = 0;
  run.predicted_step_s = 1.25;
  CHECK(Fact(run, steps, "(pad)") == "37.5 %");
  CHECK(Fact(run, steps, "packs' room") == "96.0 %");
  CHECK(Fact(run, steps, "MFU") == "43.2 %");
  CHECK(Fact(run, steps, "tiles that") == "0.4 %");
  CHECK(Fact(run, steps, "tokens that") == "0.0 %");
  CHECK(Fact(run, steps, "predicted") == "1.25 s");
}

TEST_CASE("the command line of this process, and the date", "[report][cpu]") {
  CHECK(CommandLine().find("report_facts_test") != std::string::npos);
  CHECK(UtcText(0) == "1970-01-01 00:00 UTC");
  CHECK(UtcText(1'795'384'200) == "2026-11-22 21:50 UTC");
}

}  // namespace
}  // namespace equipoise
