#pragma once

#include "parallel/comm/nccl_api.h"

namespace equipoise::testing {

// CUDA's functions that staging calls, for memory of the stand-in of GPUs. What is copied to the
// host is there once the host has waited for the stream.
CudaApi StagingStandIn(int gpu);

}  // namespace equipoise::testing
