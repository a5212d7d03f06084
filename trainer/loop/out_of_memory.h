#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/spec/layer_load.h"
#include "trainer/loop/replica.h"

namespace equipoise {

// Calls `work`, which is of a step of this rank on micro-batches of `loads`: its forward and
// backward passes, or the update of its weights. Where the GPU has no memory left for it, throws
// RunError with what the allocator held beside the forecast of the step, and the settings that need
// less. `what`: such as "step 3".
void RunWithinMemory(const Replica& replica, at::Device device, const std::string& what,
                     const std::vector<LayerLoad>& loads, const std::function<void()>& work);

}  // namespace equipoise
