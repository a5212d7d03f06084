#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>

#include "balance/groups/group_plan.h"

namespace equipoise {

struct DataGroupsOptions {
  GroupOptions groups;
  int64_t window = 0;  // samples that are grouped at a time; 0: all
  int64_t data_ranks = 1;
  std::string source;                               // of the sizes, begins the text of errors
  std::string out;                                  // JSONL, a micro-batch a line; empty: none
  std::function<int64_t(int64_t place)> number_of;  // that a sample is written with; empty: place
};

// The command `data groups`: forms the groups of the first epoch, writes each to `out` as
// {"step":0,"data_rank":3,"micro_batch":1,"samples":[17,4],"tiles":9,"tokens":3344} in the order of
// step, micro-batch, data rank, and prints the balance of random micro-batches, padded, and of
// these as a table. Samples beyond the limits are counted in the log. Throws DataError when there
// are too few groups for a step (nothing is written then), RunError when the file cannot be
// written.
void WriteDataGroups(const SampleList& samples, DataGroupsOptions options, std::ostream& table);

}  // namespace equipoise
