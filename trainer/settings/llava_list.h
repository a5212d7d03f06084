#pragma once

#include <string>
#include <vector>

#include "data/settings/data_config.h"

namespace equipoise {

// LLaVA-NeXT's list of data sets, a YAML file:
//   datasets:
//     - {json_path: a.json}
//     - {json_path: b.json, sampling_strategy: "first:10%"}   # all; first, end, random: N or N%
// Paths are relative to the current folder; pictures to the folder of the list's own source.

// By its name.
bool IsLlavaList(const std::string& path);

// The sources that the list stands for. Throws DataError with file, line and column.
std::vector<SourceConfig> SourcesOfLlavaList(const SourceConfig& list);

}  // namespace equipoise
