#include "trainer/settings/delayed_updates.h"

#include <fmt/format.h>

#include "configs/base/enum_names.h"
#include "configs/base/error.h"
#include "parallel/encoder_placement.h"
#include "parallel/schedule/builders.h"
#include "parallel/sharded_state.h"
#include "trainer/settings/offload.h"

namespace equipoise {

void RequireDelayedUpdates(const RunConfig& config) {
  const ParallelSection& parallel = config.parallel;
  const std::string schedule = parallel.schedule.value_or("");
  if (!DelaysUpdates(schedule)) return;
  const auto refuse = [&](const std::string& setting, const std::string& why,
                          const std::string& advice) {
    throw ConfigError(fmt::format("{} and parallel.schedule: {} do not go together: {}; {}",
                                  setting, schedule, why, advice));
  };
  if (parallel.zero.value_or(1) > 1) {
    refuse(fmt::format("parallel.zero: {}", *parallel.zero),
           "each rank has two versions of its weights, and gradients of two steps, whole",
           "use zero: 1, or another schedule");
  }
  if (OffloadedOf(config.train.offload) >= ShardedState::kGradients) {
    refuse("train.offload of gradients",
           "each rank has gradients of two steps, whole, where it computes",
           "use train.offload: [optimizer], or another schedule");
  }
  const auto encoder = ParseEnum<EncoderPlacement>(parallel.encoder);  // absent: auto
  if (encoder && FillsBubbles(*encoder)) {
    refuse("parallel.encoder: " + parallel.encoder,
           "it lays the encoder into bubbles, of which this schedule leaves next to none",
           "use encoder: inline or disaggregated, or another schedule");
  }
  if (parallel.prefetch) {
    refuse("parallel.prefetch: true", "it lays the encoder into bubbles",
           "leave one of the two out");
  }
  if (config.train.precision == "fp16") {
    refuse("train.precision: fp16",
           "a step whose gradients overflow changes the loss's scale when passes of the next one "
           "have run",
           "use bf16, or another schedule");
  }
  if (config.train.diloco.on()) {
    refuse("train.diloco",
           "an outer step changes weights by which passes of the next step have run",
           "leave one of the two out");
  }
}

}  // namespace equipoise
