// What PipeDream-2BW trains, beside the same done by hand: a model at the weights before the last
// update makes the gradients, and the optimizer steps from the newest.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "balance/load/partition.h"
#include "models/families/families.h"
#include "models/weights/weights.h"
#include "parallel/timeline.h"
#include "parallel/zero/grad_norm.h"
#include "parallel/zero/zero_optimizer.h"
#include "tests/models/load_of.h"
#include "tests/models/model_support.h"
#include "tests/parallel/run_ranks.h"
#include "trainer/run/parallel_model.h"

namespace equipoise {
namespace {

using testing::RandomBatch;

using testing::TinyInternVl;

constexpr int kSteps = 5, kMicroBatches = 3;

// A model with its optimizer in one process.
struct Trained {
  Trained(const std::string& schedule, at::ScalarType dtype, Communicator& world)
      : config(TinyInternVl(/*large_form=*/false)), recorder(world.rank()) {
    Plan plan = InlinePlan({});
    plan.schedule = schedule;
    plan.stage_begins = EvenStages(LayerCosts(config, {}, LoadOf(config, 2, 24)), 1);
    ParallelModel::Options options;
    options.part.dtype = dtype;
    model = std::make_unique<ParallelModel>(config, plan, options, world, recorder);
    const std::vector<Parameter*>& list = model->parameters().parameters();
    optimizer = std::make_unique<ZeroOptimizer>(
        model->parameters(), DecayGroups(list, std::vector<double>(list.size(), 1.0), 0.1),
        AdamWOptions(), model->shards(), model->optimizer_groups());
    InitializeWeights(list, config, /*seed=*/3);
    model->parameters().UpdateCompute();
    optimizer->TakeMasters();
  }

  at::Tensor weights() const {
    return model->parameters().compute().narrow(0, 0, model->parameters().trained_numel());
  }

  // The step's loss; gradients are left. `ahead`: the next step's micro-batches are known.
  double Passes(int step, bool ahead) {
    ModelPart::Pass pass;
    std::vector<MicroBatch> batches;
    for (int i = 0; i < kMicroBatches * (ahead ? 2 : 1); ++i) {
      batches.push_back(RandomBatch(config, {16, 8}, 2, 100 * step + i));
      (i < kMicroBatches ? pass.loads : pass.next_loads).push_back(LoadOf(config, 2, 24));
    }
    pass.batch = [&](int i) -> const MicroBatch& { return batches[static_cast<size_t>(i)]; };
    pass.loss_scale = pass.next_loss_scale = 0.05;
    model->RunStep(std::move(pass));
    return model->part().loss();
  }
  // Of the newest weights, whatever passes are under way.
  double Evaluate() {
    const MicroBatch batch = RandomBatch(config, {16, 8}, 2, 77);
    double loss = 0;
    ModelPart::Pass pass;
    pass.loads = {LoadOf(config, 2, 24)};
    pass.batch = [&](int) -> const MicroBatch& { return batch; };
    pass.on_result = [&](int, const at::Tensor& result) { loss = result.item<double>(); };
    model->Evaluate(std::move(pass));
    return loss;
  }
  void Update(int step) {
    const double norm = optimizer->GradientNorm();
    optimizer->Step(1e-2 / (step + 1), ClipFactor(norm, 0.5 * norm));
  }

  ModelConfig config;
  TimelineRecorder recorder;
  std::unique_ptr<ParallelModel> model;
  std::unique_ptr<ZeroOptimizer> optimizer;
};

TEST_CASE("delayed updates: gradients are those of the weights before the last update",
          "[delayed]") {
  at::set_num_threads(1);
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  RunRanks(1, [&](Communicator& world) {
    Trained delayed("pipedream_2bw", dtype, world);
    Trained newest("gpipe", dtype, world), before("gpipe", dtype, world);
    CHECK(delayed.Evaluate() == newest.Evaluate());
    for (int step = 0; step < kSteps; ++step) {
      INFO("step " << step);
      const double loss = delayed.Passes(step, /*ahead=*/step + 1 < kSteps);
      CHECK(loss == before.Passes(step, /*ahead=*/false));
      newest.model->parameters().ZeroGradient();
      newest.model->parameters().gradient().copy_(before.model->parameters().gradient());
      CHECK(
          at::equal(delayed.model->parameters().gradient(), newest.model->parameters().gradient()));
      before.weights().copy_(newest.weights());
      delayed.Update(step);
      newest.Update(step);
      CHECK(at::equal(delayed.weights(), newest.weights()));
      CHECK(at::equal(delayed.model->part().versions()->previous(), before.weights()));
      CHECK_FALSE(at::equal(delayed.weights(), before.weights()));
      CHECK(delayed.Evaluate() == newest.Evaluate());
    }
  });
}

TEST_CASE("delayed updates: a run with new micro-batches begins with an empty pipeline",
          "[delayed]") {
  at::set_num_threads(1);
  RunRanks(1, [&](Communicator& world) {
    Trained delayed("pipedream_2bw", at::kFloat, world);
    Trained other("pipedream_2bw", at::kFloat, world);
    delayed.Passes(7, /*ahead=*/true);  // a probe
    delayed.model->DropAhead();
    CHECK(delayed.Passes(0, false) == other.Passes(0, false));
    CHECK(at::equal(delayed.model->parameters().gradient(), other.model->parameters().gradient()));
  });
}

}  // namespace
}  // namespace equipoise
