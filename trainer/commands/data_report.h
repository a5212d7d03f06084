#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "trainer/run/open_data.h"

namespace equipoise {

// Reports of `equipoise data`. Each is a JSON value, which a Print function writes as text.

// Histograms of tokens, tiles, pictures and trained tokens of the usable records; the number of
// records with each defect; the packs of an epoch.
Json DataStatistics(const RunConfig& config, const std::vector<SourceConfig>& sources,
                    const OpenedData& data);
void PrintStatistics(const Json& statistics, std::ostream& out);

// The number of a record. `text` is a number, or an id, of which the first record is returned.
// Throws ConfigError when no record has that id.
int64_t FindSample(const OpenedData& data, const std::string& text);
// One sample as the model receives it: ids, loss mask, and segments of context, image and trained
// tokens.
Json DescribeSample(const OpenedData& data, int64_t sample);
// `colours`: escape sequences of a terminal show what is trained.
void PrintSample(const Json& sample, bool colours, std::ostream& out);

// Writes one sample in the input format of `equipoise check`: pixel_values [tiles, 3, size, size]
// fp32, absent without pictures; input_ids and labels [1, tokens] (not shifted, -100 where there is
// no target). Throws DataError for a sample that cannot be used, RunError when the file cannot be
// written.
void WriteSample(const OpenedData& data, int64_t sample, const std::string& path);

// Numbers of checked records.
struct CheckedRecords {
  std::vector<int64_t> by_defect;
  int64_t cut = 0;      // usable ones that lose what is behind data.max_tokens
  int64_t longest = 0;  // tokens of the longest of these, before the cut
};

// Checks every record, including the decoding of pictures, with `threads` threads. Calls `found`
// for each defect, in the order of records.
CheckedRecords CheckRecords(const OpenedData& data, int64_t threads,
                            const std::function<void(const Json& defect)>& found);

}  // namespace equipoise
