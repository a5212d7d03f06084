#pragma once

#include <optional>
#include <string>

#include "trainer/settings/run_cluster.h"

namespace equipoise {

// The GPU that a rank of this machine computes on; nothing on a machine without, and where
// train.device is "cpu". `index`: the rank's device.
std::optional<GpuFacts> ThisGpu(const std::string& device, int index = 0);

}  // namespace equipoise
