#pragma once

#include "balance/cluster.h"

namespace equipoise {

// The machines of `cluster` that hold so many ranks. `local` is this machine: all ranks are on one
// node and share its memory. Throws ConfigError for an unknown preset.
Cluster ClusterFor(const ClusterConfig& config, int ranks);

}  // namespace equipoise
