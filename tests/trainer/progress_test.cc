#include "trainer/outputs/progress.h"

#include <catch2/catch.hpp>
#include <vector>

namespace equipoise {
namespace {

struct Shown {
  std::string live;
  std::vector<std::string> lines;
  ProgressOptions Options(int64_t steps, bool live_line) {
    ProgressOptions options;
    options.steps = steps;
    options.live = live_line;
    options.live_out = [this](const std::string& text) { live += text; };
    options.line_out = [this](const std::string& text) { lines.push_back(text); };
    return options;
  }
};

StepMetrics Step(int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 2.5;
  metrics.lr = 1e-4;
  metrics.grad_norm = 0.75;
  metrics.tokens = 4000;
  metrics.samples = 8;
  metrics.images = 10;
  metrics.step_s = 2;
  metrics.data_wait_s = 0.5;
  return metrics;
}

TEST_CASE("a plain line tells step, loss, rates and the time left", "[progress][cpu]") {
  Shown shown;
  Progress progress(shown.Options(100, /*live_line=*/false));
  progress.Report(Step(1), 2.0);
  REQUIRE(shown.lines.size() == 1);
  CHECK(shown.lines[0] ==
        "step 1/100  loss 2.5000  lr 1.00e-04  norm 0.75  2k tokens/s  4 samples/s  5 images/s  "
        "wait 25%  ETA 3m18s");
}

TEST_CASE("the time left has the pauses between steps in it", "[progress][cpu]") {
  Shown shown;
  ProgressOptions options = shown.Options(100, /*live_line=*/false);
  options.every_s = 0;
  Progress progress(options);
  StepMetrics first = Step(1), second = Step(2);
  first.outer_s = 1;
  second.outer_s = 1;
  second.pause_s = 5;  // an outer step of 1 s, and 4 s to evaluate and to save
  progress.Report(first, 3);
  progress.Report(second, 11);
  CHECK_THAT(shown.lines[0], Catch::Contains("ETA 4m57s"));  // 99 steps of 3 s
  CHECK_THAT(shown.lines[1], Catch::Contains("ETA 8m10s"));  // 98 of 3 s + 4 s of two
}

TEST_CASE("a line tells epoch, MFU, memory and balance where they are known", "[progress][cpu]") {
  StepMetrics metrics = Step(1);
  metrics.epoch = 0.254;
  metrics.mfu = 0.4321;
  metrics.mem_peak_bytes = int64_t{3} << 29;
  metrics.dist_ratio_vision = 0.004;
  metrics.dist_ratio_text = 0.0121;
  for (const bool several : {false, true}) {
    Shown shown;
    ProgressOptions options = shown.Options(100, /*live_line=*/false);
    options.balance = several;
    Progress(options).Report(metrics, 2.0);
    REQUIRE(shown.lines.size() == 1);
    CHECK(shown.lines[0] ==
          std::string("step 1/100  epoch 0.25  loss 2.5000  lr 1.00e-04  norm 0.75  2k tokens/s  "
                      "4 samples/s  5 images/s  MFU 43.2%  wait 25%  ETA 3m18s  mem 1.50 GiB") +
              (several ? "  dist 0.004 vision 0.012 text" : ""));
  }
}

TEST_CASE("a live line is no longer than the terminal", "[progress][cpu]") {
  Shown shown;
  ProgressOptions options = shown.Options(100, /*live_line=*/true);
  options.columns = [] { return 21; };
  Progress(options).Report(Step(1), 1.0);
  CHECK(shown.live == "\r\033[Kstep 1/100  loss 2.5");
  shown.live.clear();
  options.columns = [] { return 0; };  // a terminal that does not tell
  Progress(options).Report(Step(1), 1.0);
  CHECK(shown.live.size() == 4 + 79);
}

TEST_CASE("plain lines come at the first and last step and every few seconds", "[progress][cpu]") {
  Shown shown;
  Progress progress(shown.Options(20, /*live_line=*/false));
  for (int64_t step = 1; step <= 20; ++step) progress.Report(Step(step), double(step));
  std::vector<std::string> steps;
  for (const std::string& line : shown.lines) steps.push_back(line.substr(0, line.find("  ")));
  CHECK(steps == std::vector<std::string>{"step 1/20", "step 6/20", "step 11/20", "step 16/20",
                                          "step 20/20"});
  CHECK(shown.live.empty());
}

TEST_CASE("a resumed run shows its first step too", "[progress][cpu]") {
  Shown shown;
  Progress progress(shown.Options(20, /*live_line=*/false));
  progress.Report(Step(13), 0.0);
  CHECK(shown.lines.size() == 1);
}

TEST_CASE("a live line is written over", "[progress][cpu]") {
  Shown shown;
  Progress progress(shown.Options(3, /*live_line=*/true));
  progress.Report(Step(1), 1.0);
  progress.Report(Step(2), 1.01);  // too soon after the one before
  progress.Report(Step(3), 1.02);
  CHECK(shown.lines.empty());
  CHECK(shown.live.find("\r\033[Kstep 1/3") == 0);
  CHECK(shown.live.find("step 2/3") == std::string::npos);
  CHECK(shown.live.find("\r\033[Kstep 3/3") != std::string::npos);
  CHECK(shown.live.find('\n') == std::string::npos);
}

TEST_CASE("times and counts are short", "[progress][cpu]") {
  CHECK(DurationText(0.4) == "0s");
  CHECK(DurationText(249) == "4m09s");
  CHECK(DurationText(11100) == "3h05m");
  CHECK(DurationText(-1) == "?");
  CHECK(CountText(950) == "950");
  CHECK(CountText(12345) == "12.3k");
  CHECK(CountText(4.56e6) == "4.56M");
  CHECK(CountText(999.7) == "1k");
  CHECK(CountText(999'700) == "1M");
  CHECK(CountText(1.2e9) == "1.2G");
}

}  // namespace
}  // namespace equipoise
