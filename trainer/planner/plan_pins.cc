#include "trainer/planner/plan_pins.h"

#include "models/families/families.h"
#include "parallel/schedule/builders.h"
#include "trainer/planner/make_plan.h"
#include "trainer/settings/delayed_updates.h"

namespace equipoise {
namespace {

std::optional<int> Pin(const std::optional<int64_t>& value) {
  return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
}

}  // namespace

PlanPins PlanPinsOf(const RunConfig& config, const ModelConfig& model) {
  const ParallelSection& parallel = config.parallel;
  PlanPins pins;
  pins.data = Pin(parallel.data);
  pins.tensor = Pin(parallel.tensor);
  pins.pipeline = Pin(parallel.pipeline);
  pins.chunks = Pin(parallel.chunks);
  pins.sequence = parallel.sequence;
  RequireContext(config, model);
  RequireDelayedUpdates(config);
  pins.context = static_cast<int>(parallel.context.value_or(1));
  pins.sharded = ZeroFor(config.train.offload, parallel.zero);
  pins.offloaded = OffloadedOf(config.train.offload);
  pins.zero_ranks = ZeroRanks(config);
  pins.encoder = EncoderPinsOf(config, model);
  if (parallel.schedule && FindSchedule(*parallel.schedule)) pins.schedule = parallel.schedule;
  if (!parallel.stage_layers.empty()) {
    pins.stage_begins =
        StageBegins(parallel.stage_layers, static_cast<int>(LayerSpecs(model).size()));
  }
  pins.recompute = GivenRecompute(config, model);
  return pins;
}

}  // namespace equipoise
