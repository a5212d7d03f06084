#pragma once

#include <cstdint>
#include <vector>

#include "parallel/shards.h"

namespace equipoise {

// How the context ranks of a tensor rank share out causal attention, of which a rank computes some
// heads (DeepSpeed-Ulysses, arXiv 2309.14509) for some rows of each sequence, against the keys of
// all rows before (arXiv 2407.21783, section 3.3.2).

// Ranges of rows, or of columns, in this order.
using Ranges = std::vector<Range>;

// The ranks as head groups x row groups: rank r has the heads of group r / row_groups and the rows
// of group r % row_groups.
struct ContextSplit {
  int head_groups = 1, row_groups = 1;
  double work = 1;    // the largest share of a rank in the work, times the ranks; 1: even
  double copies = 1;  // the most key heads of a rank, times the ranks, by those of all of them
};

// Of `heads` query heads that read `key_heads`: as many head groups as leave no rank with more than
// a tenth above the mean, since rows that are shared out need copies of the keys. REQUIRES: heads
// is a multiple of key_heads.
ContextSplit SplitOverContext(int64_t heads, int64_t key_heads, int ranks);

// The rows of each row group, ascending, each range within one segment. With `cut`, long segments
// are cut into twice as many pieces as groups, of which a group gets one from the front and its
// counterpart from the back: as much causal work for each. Others go whole to the group that has
// the least work.
std::vector<Ranges> CausalRows(const std::vector<int64_t>& cu_seqlens, int groups, bool cut);

}  // namespace equipoise
