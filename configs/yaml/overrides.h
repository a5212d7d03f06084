#pragma once

#include <string>
#include <vector>

#include "configs/yaml/yaml_reader.h"

namespace equipoise {

// The settings of a command line, `--set a.b=c` each, in their order. Throws ConfigError.
std::vector<Override> ParseOverrides(const std::vector<std::string>& settings);

}  // namespace equipoise
