#pragma once

#include "parallel/comm/nccl_api.h"

namespace equipoise::testing {

// CUDA's functions that staging calls, for memory of the stand-in of GPUs.
CudaApi StagingStandIn(int gpu);

}  // namespace equipoise::testing
