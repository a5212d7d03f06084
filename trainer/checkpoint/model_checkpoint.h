#pragma once

#include <map>
#include <string>

#include "models/stages/weight_versions.h"
#include "parallel/diloco/outer_optimizer.h"
#include "parallel/parameter.h"
#include "parallel/zero/zero_optimizer.h"
#include "trainer/checkpoint/checkpoint.h"

namespace equipoise {

// Of several models that train side by side (parallel/diloco), the one of this rank's island.
struct IslandModel {
  OuterOptimizer& outer;
  int number = 0;
  bool within_round = false;  // the model has other weights than the outer ones
};

// The pieces of weights and moments that this rank of a mesh saves. Over all ranks, each element is
// saved once. Of islands, NAME is the outer weight and `outer_momentum.NAME` its momentum; moments
// of island K > 0, and within a round the weights of each, are named `island-K.` and so on.
std::map<std::string, HeldPiece> TensorsToSave(const ZeroOptimizer& optimizer,
                                               const IslandModel* island = nullptr);

// Reads this rank's weights (all but a base under adapters, which is set already), written by any
// mesh, sets the optimizer's fp32 master weights from them, and reads this rank's shard of the
// moments; the optimizer continues at the checkpoint's number of steps. Throws DataError as
// ReadCheckpointTensors() does.
// Of islands the model has the outer weights then, and the moments of `island`.
void ReadModel(const std::string& checkpoint_dir, const CheckpointIndex& index,
               FlatParameters& parameters, ZeroOptimizer& optimizer,
               const IslandModel* island = nullptr);

// Reads the outer optimizer's state, and returns the weights that the island's model had, for
// OuterOptimizer::SetModel(): within a round its own. REQUIRES: ReadModel(), and as many islands as
// wrote the checkpoint. Throws as it does.
at::Tensor ReadRound(const std::string& checkpoint_dir, const CheckpointIndex& index,
                     const ZeroOptimizer& optimizer, const IslandModel& island);

// Where updates are delayed (models/stages/weight_versions.h): the pieces of `previous.NAME`, the
// weights before the last update, that this rank saves; and reads them. They are the newest where
// the checkpoint has none. REQUIRES: ReadModel(). Throws as it does.
void AddPreviousWeights(const ZeroOptimizer& optimizer, const WeightVersions& versions,
                        std::map<std::string, HeldPiece>& tensors);
void ReadPreviousWeights(const std::string& checkpoint_dir, const CheckpointIndex& index,
                         const FlatParameters& parameters, WeightVersions& versions);

}  // namespace equipoise
