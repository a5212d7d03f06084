#pragma once

#include <vector>

#include "data/loading/loader.h"
#include "parallel/comm/communicator.h"

namespace equipoise {

// Makes ranks that have each loaded the same pack treat the same samples as bad: one that any of
// them could not read (a file that is replaced, a server that does not answer) is blank on all,
// for that rank's reason. Otherwise their micro-batches would have different targets and places of
// pictures, and collectives between them different sizes. Returns whether that has changed
// `loaded`, which is then loaded anew, where it lies. Collective over each of `groups`, one after
// the other: each rank's are the ranks that differ from it along one axis. Costs an all-reduce of
// a few integers in each, unless ranks differ.
bool AgreeOnFaults(const Dataset& dataset, const Pack& pack,
                   const std::vector<Communicator*>& groups, LoadedPack& loaded);

// The samples of a step that a rank before the loss could not read, which those of the loss could:
// blank to the model, with their labels as targets. `bad`: of this rank's packs; `has_loss`:
// whether it computes the loss. The same on every rank. Collective over `world`.
std::vector<BadSample> MissedByLoss(const std::vector<BadSample>& bad, bool has_loss,
                                    Communicator& world);

}  // namespace equipoise
