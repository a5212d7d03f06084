#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "trainer/run/open_data.h"

namespace equipoise {

// Reports of `equipoise data`. Each report is a JSON value; PrintText makes it readable.

// Histograms of tokens, tiles and trained tokens of the usable records; defects; how an epoch
// packs.
Json DataStatistics(const RunConfig& config, const std::vector<SourceConfig>& sources,
                    const OpenedData& data);
void PrintStatistics(const Json& statistics, std::ostream& out);

// The number of the record that `text` names: a number, or the id of the first record that has it.
// Throws ConfigError where none does.
int64_t FindSample(const OpenedData& data, const std::string& text);
// One sample as the model sees it: ids, mask, and the runs of context, picture and trained tokens.
Json DescribeSample(const OpenedData& data, int64_t sample);
void PrintSample(const Json& sample, std::ostream& out);

// Writes one sample as `equipoise check` reads it: pixel_values [tiles, 3, size, size] fp32, absent
// without pictures, input_ids and labels [1, tokens] (unshifted, -100 where there is no target).
// Throws DataError for a sample that cannot be used, RunError when the file cannot be written.
void WriteSample(const OpenedData& data, int64_t sample, const std::string& path);

// Every record's defects, pictures decoded, found by `threads` threads and given in order. Returns
// how many records have each defect.
std::vector<int64_t> CheckRecords(const OpenedData& data, int64_t threads,
                                  const std::function<void(const Json& defect)>& found);

}  // namespace equipoise
