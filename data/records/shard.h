#pragma once

#include <string_view>
#include <vector>

#include "data/records/line_reader.h"
#include "data/records/record.h"
#include "data/records/record_reader.h"

namespace equipoise {

// WebDataset's shards: tar archives in which the members of a sample are consecutive. `a/000.jpg`
// and `a/000.json` are the members `jpg` and `json` of the sample `a/000`: the key ends at the
// first dot of the base name. Members without a dot, and those that begin with one, are no part of
// any.

// The extents of a shard's samples, from the first member's header to the last one's end. Reads the
// headers alone. Throws DataError for damaged archives and those without a sample.
std::vector<RecordExtent> ScanShard(const TextFile& file);
// Whether a shard ends as archives do, with a block of zeros. One without is whole as far as it
// goes, and may have been cut between two members.
bool HasEndMark(const TextFile& file);
// The samples of any archive; none where it has no sample.
std::vector<RecordExtent> FindSamples(class TarReader& members);

// Parses one sample's bytes as they lie in the shard. Its record is that of `json`, in any form of
// ParseRecord(); without one, `txt` is the answer to its pictures. Pictures that the record names
// are members by full name or base name; where it names as many as there are and none is a member,
// or names none, they are the members in their order. Videos are members by name; all of them in
// their order where there are no pictures and the record names no video. Never throws.
ParsedRecord ParseShardRecord(std::string_view sample, const RecordKeys& keys = {});

}  // namespace equipoise
