#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>

#include "balance/groups/group_plan.h"

namespace equipoise {

// Options of WriteDataGroups().
struct DataGroupsOptions {
  GroupOptions groups;
  int64_t window = 0;  // samples of a window of grouping; 0: all
  int64_t data_ranks = 1;
  std::string source;  // origin of the sizes, the prefix of error messages
  std::string out;     // JSONL file with one micro-batch per line; empty: none
  // The number that is written for the sample at an index of the list; empty: the index.
  std::function<int64_t(int64_t place)> number_of;
};

// The command `data groups`: forms the groups of the first epoch, writes each to `out` as
// {"step":0,"data_rank":3,"micro_batch":1,"samples":[17,4],"tiles":9,"tokens":3344}, ordered by
// step, micro-batch and data rank, and prints the balance of random padded micro-batches and of
// these groups as a table. The number of samples beyond the limits is logged. Throws DataError when
// there are too few groups for a step (nothing is written then), RunError when the file cannot be
// written.
void WriteDataGroups(const SampleList& samples, DataGroupsOptions options, std::ostream& table);

}  // namespace equipoise
