#pragma once

#include <map>
#include <string>

#include "parallel/parameter.h"
#include "parallel/zero/zero_optimizer.h"
#include "trainer/checkpoint/checkpoint.h"

namespace equipoise {

// The pieces of weights and moments that this rank of a mesh saves. Over all ranks, each element is
// saved once.
std::map<std::string, HeldPiece> TensorsToSave(const ZeroOptimizer& optimizer);

// Reads this rank's weights (all but a base under adapters, which is set already), written by any
// mesh, sets the optimizer's fp32 master weights from them, and reads this rank's shard of the
// moments; the optimizer continues at the checkpoint's number of steps. Throws DataError as
// ReadCheckpointTensors() does.
void ReadModel(const std::string& checkpoint_dir, const CheckpointIndex& index,
               FlatParameters& parameters, ZeroOptimizer& optimizer);

}  // namespace equipoise
