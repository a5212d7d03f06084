#pragma once

#include <string>

#include "trainer/settings/run_config.h"

namespace equipoise {

// How `train` treats checkpoints that lie in the run folder.
enum class Resume {
  kAuto,  // go on from the newest good one, if there is one
  kNone,  // refuse a run folder that holds checkpoints
  kFrom,  // go on from a given one
};

struct TrainOptions {
  RunConfig config;
  Resume resume = Resume::kAuto;
  std::string resume_from;  // with kFrom: a checkpoint, or a run folder
};

}  // namespace equipoise
