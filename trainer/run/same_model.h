#pragma once

#include <string>

#include "parallel/comm/communicator.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// Throws ConfigError where a rank's model is not rank 0's, as folders of one name on the disks of
// several machines may differ: by their config.json and the settings of pictures and answers, by an
// adapter that it begins with, and where `weights` are read by the headers of their files and
// samples of the values. Collective.
void RequireSameModel(Communicator& world, const RunConfig& config, bool weights);

// Throws ConfigError where a rank has found another checkpoint than rank 0: by the folder's name
// and index.json, which holds the checksums of all files. Collective.
void RequireSameCheckpoint(Communicator& world, const std::string& folder);

}  // namespace equipoise
