#pragma once

#include <optional>
#include <string>

#include "trainer/settings/run_cluster.h"

namespace equipoise {

// GPU `index` of this machine, on which a rank computes; empty without a GPU, or when `device`
// (train.device) is "cpu".
std::optional<GpuFacts> ThisGpu(const std::string& device, int index = 0);

}  // namespace equipoise
