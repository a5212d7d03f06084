#pragma once

#include <string>
#include <vector>

#include "configs/yaml/overrides.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// Replaces each source that names several files by one source a file:
//   a-{000..127}.tar       the files of a range of numbers, with as many digits as its first
//   a folder               its .json, .jsonl, .parquet and .tar files, by name
//   InternVL's meta file   a JSON object of data sets {"root", "annotation", "repeat_time"...}:
//                          images, annotations, and repeat times the source's own
//   dataset_info.json      LLaMA-Factory's list of data sets (dataset_info.h)
// of which `datasets` names those to take. Paths in a meta file are, as in InternVL, relative to
// the working folder. Throws DataError for a data set that cannot be used as it says.
void ExpandSources(std::vector<SourceConfig>& sources);

// The same with ranges of files as they were given, which makes a fraction in `repeat` one of all
// their records when they are read again.
std::vector<SourceConfig> WithRanges(const std::vector<SourceConfig>& sources);

// Reads a run's configuration from its file and `--set`; the sources of data.train, data.eval and
// eval.answers are expanded. Throws ConfigError and DataError.
RunConfig ReadRunConfig(const std::string& path, const std::vector<Override>& overrides);

}  // namespace equipoise
