#include "parallel/pipeline/executor.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <mutex>
#include <thread>

#include "configs/base/error.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/fill_bubbles.h"
#include "parallel/schedule/passes.h"
#include "tests/parallel/run_ranks.h"

namespace equipoise {
namespace {

using Gradients = std::map<int, at::Tensor>;  // by stage

// Stage s makes y = w[s] * (sum of its inputs + micro-batch + 1); the loss of the last stage is the
// sum of y. So gradients depend on everything that travels.
class Scales : public StageRunner {
 public:
  Scales(const Schedule& schedule, Gradients& gradients)
      : schedule_(schedule), gradients_(gradients) {}

  at::Tensor Forward(int stage, int micro_batch, const std::vector<at::Tensor>& inputs) override {
    at::Tensor x = at::full({Rows(micro_batch)}, static_cast<double>(micro_batch + 1));
    for (const at::Tensor& input : inputs) x = x + input;
    kept_[{stage, micro_batch}] = x;
    log.push_back("F" + std::to_string(stage) + "." + std::to_string(micro_batch));
    return x * Weight(stage);
  }
  std::vector<at::Tensor> Backward(int stage, int micro_batch, const at::Tensor& gradient,
                                   bool last) override {
    const auto found = kept_.find({stage, micro_batch});
    if (found == kept_.end()) throw std::logic_error("backward without forward");
    const at::Tensor x = found->second;
    kept_.erase(found);
    const at::Tensor g = gradient.defined() ? gradient : at::ones({Rows(micro_batch)});
    Add(stage, (g * x).sum(), last);
    return InputGradients(stage, micro_batch, g);
  }
  std::vector<at::Tensor> BackwardInput(int stage, int micro_batch,
                                        const at::Tensor& gradient) override {
    const auto found = kept_.find({stage, micro_batch});
    if (found == kept_.end()) throw std::logic_error("backward without forward");
    const at::Tensor g = gradient.defined() ? gradient : at::ones({Rows(micro_batch)});
    left_[{stage, micro_batch}] = {g, found->second};
    kept_.erase(found);
    return InputGradients(stage, micro_batch, g);
  }
  void BackwardWeights(int stage, int micro_batch, bool last) override {
    const auto found = left_.find({stage, micro_batch});
    if (found == left_.end()) throw std::logic_error("W without I");
    Add(stage, (found->second.first * found->second.second).sum(), last);
    left_.erase(found);
  }
  at::Tensor EmptyBoundary(int, int micro_batch) override { return at::empty({Rows(micro_batch)}); }
  void Reduce(int stage) override { reduced_.push_back(stage); }
  void FinishReduction() override {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    for (const auto& [stage, gradient] : mine_) gradients_[stage] = gradient;
    finished = true;
  }
  std::string DescribeStage(int stage) const override { return "layer " + std::to_string(stage); }

  bool AllFreed() const { return kept_.empty() && left_.empty(); }
  const std::vector<int>& lasts() const { return lasts_; }
  const std::vector<int>& reduced() const { return reduced_; }
  std::vector<std::string> log;
  bool finished = false;

 private:
  static double Weight(int stage) { return 1.25 + 0.5 * stage; }
  static int64_t Rows(int micro_batch) { return 3 + 2 * micro_batch; }

  void Add(int stage, const at::Tensor& weight_gradient, bool last) {
    at::Tensor& sum = mine_[stage];
    if (!sum.defined()) sum = at::zeros({1});
    sum.add_(weight_gradient);
    if (last) lasts_.push_back(stage);
  }
  std::vector<at::Tensor> InputGradients(int stage, int micro_batch, const at::Tensor& g) const {
    std::vector<at::Tensor> inputs;
    for (const int from : schedule_.graph.Previous(stage)) {
      if (schedule_.work.Sends(from, micro_batch)) inputs.push_back(g * Weight(stage));
    }
    return inputs;
  }

  const Schedule& schedule_;
  Gradients& gradients_;
  Gradients mine_;
  std::map<std::pair<int, int>, at::Tensor> kept_;
  std::map<std::pair<int, int>, std::pair<at::Tensor, at::Tensor>> left_;  // by BackwardInput
  std::vector<int> lasts_, reduced_;
};

struct Outcome {
  Gradients gradients;
  std::vector<Timeline> timelines;  // by rank
};

Outcome RunSchedule(const Schedule& schedule) {
  Outcome outcome;
  outcome.timelines.resize(schedule.ranks.size());
  RunRanks(static_cast<int>(schedule.ranks.size()), [&](Communicator& world) {
    Scales runner(schedule, outcome.gradients);
    TimelineRecorder recorder(world.rank());
    recorder.Start();
    Executor executor(runner, world, recorder);
    executor.Run(schedule);
    if (!runner.AllFreed()) throw std::logic_error("something is kept");
    if (!runner.finished) throw std::logic_error("no OPT");
    if (runner.lasts() != runner.reduced()) {
      std::vector<int> sorted = runner.lasts();
      std::sort(sorted.rbegin(), sorted.rend());
      if (sorted != runner.reduced()) throw std::logic_error("last backward and REDUCE differ");
    }
    outcome.timelines[static_cast<size_t>(world.rank())] = recorder.timeline();
  });
  return outcome;
}

bool SameBits(const Gradients& a, const Gradients& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [stage, gradient] : a) {
    if (b.count(stage) == 0 || !gradient.equal(b.at(stage))) return false;
  }
  return true;
}

Schedule Complete(const Schedule& schedule, const StepWork& work = {}) {
  return CompleteSchedule(schedule, work, SimulationCosts());
}

TEST_CASE("every schedule gives the same bits", "[parallel][cpu]") {
  const int micro_batches = GENERATE(1, 2, 5);
  const Gradients expected =
      RunSchedule(Complete(BuildNaive(ChainGraph({0, 0, 0, 0}), micro_batches))).gradients;
  REQUIRE(expected.size() == 4);
  for (const std::string name : {"naive", "gpipe", "1f1b", "zb_h1"}) {
    INFO(name);
    const Schedule schedule = BuildSchedule(name, ChainGraph({0, 1, 2, 3}), micro_batches);
    CHECK(SameBits(RunSchedule(Complete(schedule)).gradients, expected));
  }
  const Schedule interleaved = BuildInterleaved(ChainGraph({0, 1, 0, 1}), micro_batches);
  CHECK(SameBits(RunSchedule(Complete(interleaved)).gradients, expected));
  const Schedule folded = BuildZbV(ChainGraph({0, 1, 1, 0}), micro_batches);
  CHECK(SameBits(RunSchedule(Complete(folded)).gradients, expected));
}

// An encoder on rank 0 and another on rank 1 feed the first stage of a language model on rank 2.
StageGraph TwoEncoders() {
  StageGraph graph;
  graph.stages.resize(4);
  for (int s = 0; s < 4; ++s) graph.stages[static_cast<size_t>(s)].rank = s;
  graph.stages[0].next = {2};
  graph.stages[1].next = {2};
  graph.stages[2].next = {3};
  graph.stages[0].encoder = graph.stages[1].encoder = true;
  graph.stages[0].needs_input_gradient = graph.stages[1].needs_input_gradient = false;
  return graph;
}

TEST_CASE("encoders of their own feed the stage of the splice", "[parallel][cpu]") {
  StepWork work;
  work.runs = {{true, false, true}, {false, false, true}, {true, true, true}, {true, true, true}};
  work.sends = {
      {true, false, true}, {false, false, true}, {true, true, true}, {false, false, false}};
  StageGraph one_rank = TwoEncoders();
  for (StageNode& stage : one_rank.stages) stage.rank = 0;
  const Gradients expected = RunSchedule(Complete(BuildGPipe(one_rank, 3), work)).gradients;
  for (const bool gpipe : {true, false}) {
    const Schedule schedule = gpipe ? BuildGPipe(TwoEncoders(), 3) : Build1F1B(TwoEncoders(), 3);
    CHECK(SameBits(RunSchedule(Complete(schedule, work)).gradients, expected));
  }
}

// Two pipeline ranks of two tensor ranks each: what all of these run, and what one of two lanes.
TEST_CASE("tensor ranks run their lane's part of one list", "[parallel][cpu]") {
  const Schedule lanes = FillBubbles(Build1F1B(ChainGraph({0, 1}), 5), {.lanes = 2, .pieces = 2},
                                     {}, EncoderPlacement::kOptimus);
  Schedule in_none = lanes;
  for (StageNode& stage : in_none.graph.stages) stage.lane = -1;
  const Gradients expected = RunSchedule(in_none).gradients;
  std::vector<Gradients> gradients(4);
  RunRanks(4, [&](Communicator& world) {
    const int pipeline_rank = world.rank() / 2, lane = world.rank() % 2;
    const auto pipeline = world.Split(lane, pipeline_rank, "pipeline");
    const auto tensor = world.Split(pipeline_rank, lane, "tensor");
    Scales runner(lanes, gradients[static_cast<size_t>(world.rank())]);
    TimelineRecorder recorder(world.rank());
    Executor(runner, *pipeline, recorder, at::kCPU, {lane, 1, tensor.get()}).Run(lanes);
    if (!runner.AllFreed()) throw std::logic_error("something is kept");
  });
  for (int rank = 0; rank < 4; ++rank) {
    for (int stage = 0; stage < lanes.graph.num_stages(); ++stage) {
      const StageNode& node = lanes.graph.stages[static_cast<size_t>(stage)];
      const bool here = node.rank == rank / 2 && (node.lane < 0 || node.lane == rank % 2);
      const auto found = gradients[static_cast<size_t>(rank)].find(stage);
      const bool has = found != gradients[static_cast<size_t>(rank)].end();
      INFO("rank " << rank << ", stage " << stage);
      CHECK(has == here);
      if (has) CHECK(found->second.equal(expected.at(stage)));
    }
  }
}

TEST_CASE("the timeline names every op once", "[parallel][cpu]") {
  const Schedule schedule = Complete(Build1F1B(ChainGraph({0, 1}), 3));
  const Outcome outcome = RunSchedule(schedule);
  for (size_t rank = 0; rank < 2; ++rank) {
    std::map<std::string, int> seen;
    for (const Span& span : outcome.timelines[rank]) {
      ++seen[span.name];
      CHECK(span.end_s >= span.start_s);
    }
    for (const Op& op : schedule.ranks[rank]) {
      if (IsCompute(op.kind) || IsTransfer(op.kind)) CHECK(seen[ToString(op)] == 1);
    }
  }
}

// Rank 1 stands still in its first backward.
class Stuck : public Scales {
 public:
  using Scales::Scales;
  std::vector<at::Tensor> Backward(int, int, const at::Tensor&, bool) override {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    throw RunError("slept");
  }
};

TEST_CASE("a rank that stands still is named with op and layers", "[parallel][cpu]") {
  const Schedule schedule = Complete(Build1F1B(ChainGraph({0, 1}), 3));
  std::string text;
  CommOptions options;
  options.timeout = std::chrono::milliseconds(600);
  const auto run = [&](Communicator& world) {
    Gradients gradients;
    TimelineRecorder recorder(world.rank());
    if (world.rank() == 1) {
      Stuck runner(schedule, gradients);
      Executor(runner, world, recorder).Run(schedule);
    } else {
      Scales runner(schedule, gradients);
      try {
        Executor(runner, world, recorder).Run(schedule);
      } catch (const RunError& error) {
        text = error.what();
      }
    }
  };
  CHECK_THROWS_AS(RunRanks(2, run, options), RunError);
  INFO(text);
  CHECK(text.find("rank 0: recv from rank 1 #") == 0);
  CHECK(text.find("no answer from rank 1") != std::string::npos);
  CHECK(text.find("rank 1 is running") != std::string::npos);
  CHECK(text.find("; it is at 1B0, layer 1 (at 0B0, layer 0)") != std::string::npos);
}

}  // namespace
}  // namespace equipoise
