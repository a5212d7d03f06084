#pragma once

#include <string>

#include "trainer/settings/run_config.h"

namespace equipoise {

// `train --resume`: the use of checkpoints in the run folder.
enum class Resume {
  kAuto,  // resume from the newest good one, if there is one
  kNone,  // refuse a run folder that holds checkpoints
  kFrom,  // resume from a given one
};

struct TrainOptions {
  RunConfig config;
  Resume resume = Resume::kAuto;
  std::string resume_from;  // with kFrom: a checkpoint, or a run folder
};

}  // namespace equipoise
