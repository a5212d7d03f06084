#pragma once

#include <vector>

#include "balance/costs/cluster.h"

namespace equipoise {

// The machines of `cluster` that hold so many ranks. `local` is this machine: all ranks are on one
// node and share its memory. Throws ConfigError for an unknown preset.
Cluster ClusterFor(const ClusterConfig& config, int ranks);

// `local` takes all ranks for one node, on which tensor groups may lie anywhere: where they are on
// several machines, a node is what each of these holds. `machines`: of each rank, by any number.
void UseMachines(const std::vector<int>& machines, ClusterConfig& config);

}  // namespace equipoise
