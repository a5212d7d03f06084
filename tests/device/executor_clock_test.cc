// Seconds of compute on a device that runs behind the host, beside the waits of the host.

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "parallel/pipeline/executor.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/passes.h"
#include "tests/device/gpu_stand_in.h"
#include "tests/parallel/run_ranks.h"

namespace equipoise {
namespace {

// Stages of some milliseconds; the first takes longest, so the second waits for it.
class Products : public StageRunner {
 public:
  at::Tensor Forward(int stage, int, const std::vector<at::Tensor>& inputs) override {
    Multiply(stage);
    return inputs.empty() ? at::ones({1}) : inputs.front();
  }
  std::vector<at::Tensor> Backward(int stage, int, const at::Tensor&, bool) override {
    Multiply(stage);
    return {at::ones({1})};
  }
  std::vector<at::Tensor> BackwardInput(int, int, const at::Tensor&) override { return {}; }
  void BackwardWeights(int, int, bool) override {}
  at::Tensor EmptyBoundary(int, int) override { return at::empty({1}); }
  void Reduce(int) override {}
  void FinishReduction() override {}
  std::string DescribeStage(int) const override { return "layer"; }

 private:
  static void Multiply(int stage) {
    const at::Tensor x = at::ones({stage == 0 ? 700 : 100, 700});
    for (int i = 0; i < 3; ++i) at::mm(x, at::ones({700, 700}));
  }
};

TEST_CASE("what an op waits for is no part of its compute", "[device]") {
  const Schedule schedule =
      CompleteSchedule(BuildSchedule("1f1b", ChainGraph({0, 1}), 3), StepWork(), {});
  struct Seconds {
    double waited = 0, computed = 0, whole = 0;
  };
  std::vector<Seconds> ranks(2);
  RunRanks(2, [&](Communicator& world) {
    Products runner;
    TimelineRecorder recorder(world.rank());
    recorder.Start();
    Executor executor(runner, world, recorder, at::Device(at::kCUDA, 0));
    executor.Run(schedule);
    Seconds& seconds = ranks[static_cast<size_t>(world.rank())];
    for (const Span& span : recorder.timeline()) {
      if (span.lane == "wait") seconds.waited += span.end_s - span.start_s;
    }
    seconds.computed = executor.busy_s();
    seconds.whole = executor.span_s();
  });
  for (const Seconds& seconds : ranks) {
    INFO(seconds.waited << " s waited, " << seconds.computed << " s computed");
    CHECK(seconds.waited > 0);
    // One after the other; events count milliseconds in floating point.
    CHECK(seconds.waited + seconds.computed <= seconds.whole + 1e-4);
  }
}

}  // namespace
}  // namespace equipoise
