#pragma once

#include <cstdint>
#include <vector>

#include "parallel/shards.h"

namespace equipoise {

// A sum whose bits do not depend on who adds which part of it: pairs of neighbouring blocks are
// added, then pairs of pairs, and so on. A node is such a partial sum: of the 2^level blocks that
// begin at block index * 2^level.
struct TreeNode {
  int level = 0;
  int64_t index = 0;
  double value = 0;
};

class TreeSum {
 public:
  // Adds the node that follows the last one; the first may be any.
  void Add(TreeNode node);
  // What has been added, as few nodes as can be, ascending.
  const std::vector<TreeNode>& nodes() const { return nodes_; }
  // REQUIRES: the first node began at block 0. Blocks beyond the last are nothing.
  double Total() const;

 private:
  std::vector<TreeNode> nodes_;
};

// The nodes() of a TreeSum that was given the blocks [begin, end), with values 0.
std::vector<TreeNode> NodesOf(Range blocks);

// Adds the squares, in fp64, of `count` numbers in blocks of Shards::kBlock, of which the first is
// block `first` of its tensor.
void AddSquares(const float* values, int64_t count, int64_t first, TreeSum& sum);

}  // namespace equipoise
