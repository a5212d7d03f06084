#pragma once

#include <string>
#include <vector>

#include "configs/yaml/yaml_reader.h"

namespace equipoise {

// Parses the `--set a.b=c` of a command line, in their order. Throws ConfigError.
std::vector<Override> ParseOverrides(const std::vector<std::string>& settings);

}  // namespace equipoise
