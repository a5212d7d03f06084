#pragma once

#include "balance/costs/program.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// How a run is executed, as plans are priced: by which kernels, with what moments, and whether its
// plan has sequence parallelism.
inline RunStyle StyleOf(const TrainSection& train, bool sequence = false) {
  RunStyle style;
  style.program = &ThisProgram(/*own_kernels=*/train.kernels == "auto");
  style.moment_bytes = static_cast<int>(ElementBytes(train.moments));
  style.sequence_parallel = sequence;
  return style;
}

}  // namespace equipoise
