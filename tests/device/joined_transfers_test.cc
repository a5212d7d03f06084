// Transfers that cross, over streams that share one queue of the hardware: joined ones have to
// start as one, or both ranks hang.
#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "parallel/pipeline/executor.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/passes.h"
#include "tests/device/nccl_gpus.h"
#include "tests/parallel/run_ranks.h"

namespace equipoise::testing {
namespace {

// Each stage adds one to what the stage before it, or behind it, sends.
class Counting : public StageRunner {
 public:
  explicit Counting(at::Device device) : device_(device) {}

  at::Tensor Forward(int, int, const std::vector<at::Tensor>& inputs) override {
    return inputs.empty() ? Full(0) : inputs.front().add(1);
  }
  std::vector<at::Tensor> Backward(int stage, int, const at::Tensor& gradient, bool) override {
    const at::Tensor mine = gradient.defined() ? gradient.add(1) : Full(0);
    if (stage == 0) last.push_back(mine.sum().item<float>());
    return {mine};
  }
  std::vector<at::Tensor> BackwardInput(int stage, int batch, const at::Tensor& gradient) override {
    return Backward(stage, batch, gradient, false);
  }
  void BackwardWeights(int, int, bool) override {}
  at::Tensor EmptyBoundary(int, int) override { return at::empty({1}, device_); }
  void Reduce(int) override {}
  void FinishReduction() override {}
  std::string DescribeStage(int) const override { return "layer"; }

  std::vector<float> last;  // gradients that have come back to the first stage

 private:
  at::Tensor Full(float value) const { return at::full({1}, value, device_); }
  at::Device device_;
};

TEST_CASE("transfers that cross start as one", "[device]") {
  const auto [name, chain] = GENERATE(table<std::string, std::vector<int>>(
      {{"1f1b", {0, 1}}, {"1f1b", {0, 1, 2, 3}}, {"zb_h1", {0, 1, 2}}, {"zb_v", {0, 1, 1, 0}}}));
  const int ranks = *std::max_element(chain.begin(), chain.end()) + 1;
  constexpr int kBatches = 6;
  // All ops take the same time, so neighbours send at a time.
  const Schedule schedule =
      CompleteSchedule(BuildSchedule(name, ChainGraph(chain), kBatches), StepWork(), {});
  bool joined = false;
  for (const std::vector<Op>& list : schedule.ranks) {
    for (const Op& op : list) joined |= op.joined;
  }
  REQUIRE(joined);
  NcclGpus gpus(ranks, nullptr, NcclStandIn::Queues::kOne);
  const CellDevices devices = gpus.devices();
  std::vector<float> last;
  RunRanksOver(ranks, devices.wrap, [&](Communicator& world) {
    std::vector<std::pair<int, int>> pairs;
    for (int rank = 1; rank < ranks; ++rank) pairs.emplace_back(rank - 1, rank);
    world.Connect(pairs);
    Counting runner(devices.device(world.rank()));
    TimelineRecorder recorder(world.rank());
    Executor(runner, world, recorder, devices.device(world.rank())).Run(schedule);
    if (world.rank() == 0) last = runner.last;
  });
  CHECK(last == std::vector<float>(kBatches, static_cast<float>(chain.size() - 1)));
  CHECK(gpus.stand_in().Refused().empty());
}

}  // namespace
}  // namespace equipoise::testing
