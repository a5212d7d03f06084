#pragma once

#include "parallel/comm/communicator.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// Throws ConfigError where a rank's model is not rank 0's, as folders of one name on the disks of
// several machines may differ: by their config.json, and where `weights` are read by the headers of
// their files and samples of the values. Collective.
void RequireSameModel(Communicator& world, const RunConfig& config, bool weights);

}  // namespace equipoise
