#pragma once

#include "trainer/settings/precision.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// Throws ConfigError where train.fp8 asks for products that the precision or the cluster's devices
// have not.
void CheckFp8(const RunConfig& config, Precision precision);

}  // namespace equipoise
