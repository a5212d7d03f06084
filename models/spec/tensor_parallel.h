#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace equipoise {

class Communicator;

// The context-parallel group, whose ranks share out the rows of each micro-batch in the language
// model, and its pictures in the encoder (DeepSpeed-Ulysses, arXiv 2309.14509). Each has all
// weights, or its tensor rank's part of them; for attention it has all rows of some heads.
struct ContextParallel {
  Communicator* group = nullptr;  // outlives the layers; null where size is 1
  int rank = 0;
  int size = 1;
};

// The tensor-parallel group, whose ranks split every layer, and this rank's place in it. The
// default is a rank alone: nothing is split, and no communicator is called.
struct TensorParallel {
  Communicator* group = nullptr;  // outlives the layers; null where size is 1
  int rank = 0;
  int size = 1;
  // Sequence parallelism (Korthikanti et al., arXiv 2205.05198, section 4.2.2): between its split
  // linear layers a block has some of the rows of a micro-batch on each rank.
  bool sequence = false;
  ContextParallel context = {};  // the ranks beside this one that share out rows
};

// Rows that each of `ranks` holds of `rows`: rank r those from r times this number on. Of the last
// ranks they may end with, or be, padding: rows whose gradient is zero.
inline int64_t RowShare(int64_t rows, int ranks) { return (rows + ranks - 1) / ranks; }

// A micro-batch's rows in the language model on this context rank, padding included, and the range
// of them that is not.
struct OwnRows {
  int64_t share = 0, begin = 0, size = 0;
};
inline OwnRows RowsOf(const ContextParallel& context, int64_t rows) {
  const int64_t share = RowShare(rows, context.size);
  const int64_t begin = std::min(rows, context.rank * share);
  return {share, begin, std::min(rows - begin, share)};
}

// The range of one dimension of a tensor that a rank holds. Several ranks hold the same range where
// there are fewer ranges than ranks.
struct Share {
  int64_t begin = 0, size = 0;
  int64_t whole = 0;        // size of the dimension
  int part = 0, parts = 1;  // index of this range, number of different ranges
  bool owner = true;        // the first of the ranks that hold it

  bool split() const { return parts > 1; }
};

// ShareX() are LibTorch-free arithmetic, so that a planner can ask for any rank. They throw
// ConfigError that names `what` for more ranks than there are units to share.

// Shares `units` units of `unit` elements each, as evenly as whole units allow; the first ranks
// have the larger shares (25 heads over 4 ranks: 7, 6, 6, 6). No unit is padded: files and
// optimizer hold shares of the same sizes.
Share ShareUnits(const TensorParallel& tensor, int64_t units, int64_t unit,
                 const std::string& what);

// Shares a width in multiples of 16 elements where every rank then has some, else of 8, 4, 2 or 1.
Share ShareWidth(const TensorParallel& tensor, int64_t width, const std::string& what);

// Shares of query heads and of the key heads that they use: head h uses key head h / (heads /
// key_heads). A rank holds whole groups of query heads, or some heads of one group where there are
// fewer groups than ranks; the ranks of a group then hold the same key head.
struct HeadShares {
  Share query, key;  // in elements: heads * head_dim
};
HeadShares ShareHeads(const TensorParallel& tensor, int64_t heads, int64_t key_heads,
                      int64_t head_dim, const std::string& what);

}  // namespace equipoise
