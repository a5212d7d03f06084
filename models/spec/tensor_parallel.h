#pragma once

#include <cstdint>
#include <string>

namespace equipoise {

class Communicator;

// The ranks that split every layer among them, and this one's place there. The default is a rank
// alone: nothing is split, and no communicator is called.
struct TensorParallel {
  Communicator* group = nullptr;  // outlives the layers; null where size is 1
  int rank = 0;
  int size = 1;
};

// The range of one dimension of a tensor that a rank holds. Where there are fewer ranges than
// ranks, several hold the same one.
struct Share {
  int64_t begin = 0, size = 0;
  int64_t whole = 0;        // of all ranges
  int part = 0, parts = 1;  // which of the different ranges
  bool owner = true;        // the first of the ranks that hold it

  bool split() const { return parts > 1; }
};

// LibTorch-free arithmetic, so that a planner can ask for any rank. `what` is named in the
// ConfigError for more ranks than there are units to share.

// `units` of `unit` elements each, as evenly as whole units allow; the first ranks have the larger
// shares (25 heads over 4 ranks: 7, 6, 6, 6). No unit is padded, so shares tell the truth about
// what files and optimizer hold.
Share ShareUnits(const TensorParallel& tensor, int64_t units, int64_t unit,
                 const std::string& what);

// A width in multiples of 16 where that leaves no rank without, else of 8, 4, 2 or 1.
Share ShareWidth(const TensorParallel& tensor, int64_t width, const std::string& what);

// Query heads and the key heads that they use: head h uses key head h / (heads / key_heads). A rank
// holds whole groups of query heads, or some of the heads of one group where there are fewer groups
// than ranks: then the ranks of a group hold the same key head.
struct HeadShares {
  Share query, key;  // in elements: heads * head_dim
};
HeadShares ShareHeads(const TensorParallel& tensor, int64_t heads, int64_t key_heads,
                      int64_t head_dim, const std::string& what);

}  // namespace equipoise
