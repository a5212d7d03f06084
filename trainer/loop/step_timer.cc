#include "trainer/loop/step_timer.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>

#include "configs/base/error.h"
#include "parallel/comm/values.h"
#include "trainer/common/agreement.h"
#include "trainer/device/memory_stats.h"
#include "trainer/loop/first_weights.h"
#include "trainer/loop/replica.h"
#include "trainer/loop/step_runner.h"
#include "trainer/run/same_model.h"

namespace equipoise {

StepTimer::StepTimer(const RunConfig& config, MpiEnvironment& mpi)
    : context_(config, mpi), data_(context_) {
  CheckFirstWeights(context_, data_.model_config());
  RequireSameModel(context_.world(), context_.config, /*weights=*/true);
  KeepFreedMemory();  // as training does
}

void StepTimer::UsePacks(const PackLimits& limits, int64_t global_batch) {
  PlanPrediction prediction;
  prediction.tiles = limits.tiles;
  prediction.tokens = limits.tokens;
  prediction.global_batch = global_batch;
  data_.FixLimits(prediction);
}

std::vector<double> StepTimer::Time(const ScoredPlan& plan, int warm_up, int timed) {
  ReturnFreeMemory();  // of the previous plan
  ReturnFreeMemory(context_.device());
  RequireMemory(plan);
  std::vector<double> seconds;
  const auto run = [&] { seconds = RunSteps(plan.plan, warm_up, timed); };
  if (context_.world().size() == 1) {
    AgreeOrThrowRunError(context_.world(), run);
  } else {
    run();
  }
  return AllReduceValues(context_.world(), seconds, ReduceOp::kMax);
}

// Allocates the bytes that this rank is predicted to need, and frees them; but not the reserve, of
// which the device's context is in use already.
void StepTimer::RequireMemory(const ScoredPlan& plan) const {
  const int rank = plan.plan.mesh.Coordinate(context_.islands.mine().rank(), Axis::kPipeline);
  const MemoryForecast& memory = plan.memory[static_cast<size_t>(rank)];
  const int64_t bytes = memory.total() - memory.reserve;
  AgreeOrThrowRunError(context_.world(), [&] {
    try {
      at::empty({bytes}, at::TensorOptions(context_.device()).dtype(at::kByte));
    } catch (const c10::Error&) {
      throw RunError(fmt::format("out of memory: rank {} cannot get the {:.1f} MiB that it needs",
                                 context_.rank(), static_cast<double>(bytes) / (1 << 20)));
    }
  });
}

std::vector<double> StepTimer::RunSteps(const Plan& plan, int warm_up, int timed) {
  Replica replica(context_, data_.model_config(), plan, data_.limits());
  TakeFirstWeights(context_, data_.model_config(), replica.model().parameters());
  replica.optimizer().TakeMasters();
  StepRunner steps(context_, data_, replica);
  steps.Start({});
  std::vector<double> seconds;
  for (int step = 1; step <= warm_up + timed; ++step) {
    const StepResult result = steps.Run(step);
    if (result.stop) throw UserError(ExitCode::kStopped, "plan --trial: stopped on request");
    if (step > warm_up) seconds.push_back(result.step_s);
  }
  return seconds;
}

}  // namespace equipoise
