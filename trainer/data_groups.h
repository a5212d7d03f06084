#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "balance/group_plan.h"

namespace equipoise {

struct DataGroupsOptions {
  GroupOptions groups;
  int64_t data_ranks = 1;
  std::string source;  // of the sizes, begins the text of errors
  std::string out;     // JSONL, a micro-batch a line
};

// What `data groups` does: forms the groups of the first epoch, writes each as
// {"step":0,"data_rank":3,"micro_batch":1,"samples":[17,4],"tiles":9,"tokens":3344} in the order of
// step, micro-batch, data rank, and prints the balance of random micro-batches and of these as a
// table. `ids[i]`: the number that sample i is written with; empty: i. Samples beyond the limits
// are counted in the log. Throws DataError when there are too few groups for a step, RunError when
// the file cannot be written.
void WriteDataGroups(const std::vector<SampleSize>& sizes, const std::vector<int64_t>& ids,
                     DataGroupsOptions options, std::ostream& table);

}  // namespace equipoise
