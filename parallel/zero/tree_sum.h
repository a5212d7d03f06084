#pragma once

#include <cstdint>
#include <vector>

#include "parallel/shards.h"

namespace equipoise {

// A node of a TreeSum: the sum of the 2^level blocks from block index * 2^level on.
struct TreeNode {
  int level = 0;
  int64_t index = 0;
  double value = 0;
};

// A pairwise sum of blocks whose bits do not depend on which rank adds which part: neighbouring
// blocks are added in pairs, then pairs of pairs, and so on, in a binary tree that the blocks'
// indices fix.
class TreeSum {
 public:
  // Adds a node. REQUIRES: it begins where the one before it ended; the first may be any.
  void Add(TreeNode node);
  // The fewest nodes that cover what has been added, ascending.
  const std::vector<TreeNode>& nodes() const { return nodes_; }
  // The sum of all blocks; those after the last count as 0. REQUIRES: the first node began at
  // block 0.
  double Total() const;

 private:
  std::vector<TreeNode> nodes_;
};

// The nodes() of a TreeSum that was given the blocks [begin, end), all of value 0.
std::vector<TreeNode> NodesOf(Range blocks);

// Adds the squares of `count` numbers, in fp64, in blocks of Shards::kBlock numbers; the first
// block is block `first` of its tensor.
void AddSquares(const float* values, int64_t count, int64_t first, TreeSum& sum);

}  // namespace equipoise
