#pragma once

#include "trainer/settings/run_config.h"

namespace equipoise {

// Throws ConfigError where `parallel.schedule` delays updates (PipeDream-2BW), and another setting
// does not go with that.
void RequireDelayedUpdates(const RunConfig& config);

}  // namespace equipoise
