#pragma once

#include <c10/core/Device.h>

#include <string>

#include "parallel/comm/communicator.h"

namespace equipoise {

// Has operations on GPUs run by the program's own kernels (models/ops/kernels), by `setting`
// (train.kernels): "auto", where ranks compute on GPUs; "aten", nowhere. Collective over `world`.
// REQUIRES: every rank has opened its device, of one kind. Throws ConfigError, the same on all
// ranks, when some rank cannot load the kernels.
void OpenKernels(const std::string& setting, at::Device device, Communicator& world);

}  // namespace equipoise
