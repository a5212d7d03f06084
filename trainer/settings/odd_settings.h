#pragma once

#include <string>
#include <vector>

#include "models/spec/image_spec.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// Warnings about settings that are valid and hardly meant: rates where shares of train.lr belong,
// and settings that differ from their defaults and that this run reads nowhere. `images`: of its
// model. One line each.
std::vector<std::string> OddSettings(const RunConfig& config, const ImageSpec& images);

}  // namespace equipoise
