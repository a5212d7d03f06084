#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/spec/layer_load.h"
#include "trainer/loop/replica.h"

namespace equipoise {

// Calls `passes`, which runs this rank's forward and backward passes on micro-batches of `loads`.
// Where the GPU has no memory left for them, throws RunError with what the allocator held beside
// the forecast of these passes, and the settings that need less. `what`: such as "step 3".
void RunWithinMemory(const Replica& replica, at::Device device, const std::string& what,
                     const std::vector<LayerLoad>& loads, const std::function<void()>& passes);

}  // namespace equipoise
