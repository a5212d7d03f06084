#pragma once

#include "balance/costs/program.h"
#include "trainer/settings/offload.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// How a run is executed beside its plan, as plans are priced: by which kernels, with what moments
// and masters, where, and how its plan shares out tokens: over tensor ranks too (sequence
// parallelism), and over how many context ranks.
inline RunStyle StyleOf(const TrainSection& train, int context, bool sequence = false) {
  RunStyle style;
  style.program = &ThisProgram(/*own_kernels=*/train.kernels == "auto");
  style.cudnn_tiles =
      train.attention == "cudnn_tiles" || (train.attention == "auto" && !train.deterministic);
  style.fp8 = train.fp8;
  style.moment_bytes = ElementBytes(train.moments);
  style.whole_masters = train.precision == ToString(Precision::kFp16);
  style.without_masters = train.master == MasterPrecision::kNone;
  style.offloads_activations = Offloads(train.offload, OffloadedState::kActivations);
  const DilocoSection& diloco = train.diloco;
  if (diloco.on()) style.outer_bytes = diloco.momentum > 0 ? 8 : 4;
  style.sequence_parallel = sequence;
  style.context = context;
  return style;
}

}  // namespace equipoise
