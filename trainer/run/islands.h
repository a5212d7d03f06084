#pragma once

#include <memory>

#include "parallel/comm/communicator.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// The ranks of a run by island, neighbours, each of which trains a model of its own
// (train.diloco). Without DiLoCo there is one.
class Islands {
 public:
  // Collective. Throws ConfigError as RanksOfIsland() does. `world` must outlive it.
  Islands(const RunConfig& config, Communicator& world);

  int count() const { return count_; }
  int number() const { return world_.rank() / mine().size(); }  // of this rank's
  // The ranks of this rank's island.
  Communicator& mine() const { return mine_ ? *mine_ : world_; }
  // The ranks in this rank's place on each island, in order; null: there is one island.
  Communicator* peers() const { return peers_.get(); }
  // All ranks where they train several models; null: there is one island.
  Communicator* all() const { return peers_ ? &world_ : nullptr; }

  // The mean over all islands of a value that the ranks of each have alike. Collective over all.
  double Mean(double value) const;

 private:
  Communicator& world_;
  int count_;
  std::unique_ptr<Communicator> mine_, peers_;  // null: one island
};

}  // namespace equipoise
