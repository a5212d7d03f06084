#pragma once

#include <map>
#include <string>

#include "parallel/parameter.h"
#include "parallel/zero/zero_optimizer.h"
#include "trainer/checkpoint/checkpoint.h"

namespace equipoise {

// Pieces of weights and moments that this rank of a mesh saves: over all ranks everything once.
std::map<std::string, HeldPiece> TensorsToSave(const ZeroOptimizer& optimizer);

// Reads this rank's weights, whatever mesh wrote them, takes the masters, and reads its share of
// the moments; the optimizer goes on from the checkpoint's number of steps. Throws DataError as
// ReadCheckpointTensors() does.
void ReadModel(const std::string& checkpoint_dir, const CheckpointIndex& index,
               FlatParameters& parameters, ZeroOptimizer& optimizer);

}  // namespace equipoise
