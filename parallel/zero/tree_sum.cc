// Like a binary counter: a node whose index is odd completes a pair with the node before it, and
// the pair is carried to the next level. So blocks that are added one by one, or as nodes that
// other ranks have summed, meet in the same pairs in the same order, and the sum has the same bits.
// At most two nodes a level are held; adding n blocks costs O(n).

#include "parallel/zero/tree_sum.h"

#include <algorithm>

#include "parallel/zero/sum_of_squares.h"

namespace equipoise {

void TreeSum::Add(TreeNode node) {
  while (!nodes_.empty() && node.index % 2 == 1 && nodes_.back().level == node.level &&
         nodes_.back().index == node.index - 1) {
    node = {node.level + 1, node.index / 2, nodes_.back().value + node.value};
    nodes_.pop_back();
  }
  nodes_.push_back(node);
}

double TreeSum::Total() const {
  double sum = 0;
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) sum = node->value + sum;
  return sum;
}

std::vector<TreeNode> NodesOf(Range blocks) {
  std::vector<TreeNode> nodes;
  for (int64_t at = blocks.begin; at < blocks.end;) {
    int level = 0;
    while ((at >> level) % 2 == 0 && at + (int64_t{2} << level) <= blocks.end) ++level;
    nodes.push_back({level, at >> level, 0.0});
    at += int64_t{1} << level;
  }
  return nodes;
}

void AddSquares(const float* values, int64_t count, int64_t first, TreeSum& sum) {
  constexpr int64_t kBlock = Shards::kBlock;
  static_assert(kBlocksAtOnce == 8, "a node of level 3");
  for (int64_t at = 0; at < count;) {
    const int64_t index = first + at / kBlock;
    // A node of eight whole blocks at once: the same pairs, without the list of nodes.
    if (index % kBlocksAtOnce == 0 && count - at >= kBlocksAtOnce * kBlock) {
      double s[kBlocksAtOnce];
      SumsOfSquares(values + at, kBlock, s);
      const double low = (s[0] + s[1]) + (s[2] + s[3]), high = (s[4] + s[5]) + (s[6] + s[7]);
      sum.Add({3, index / kBlocksAtOnce, low + high});
      at += kBlocksAtOnce * kBlock;
      continue;
    }
    sum.Add({0, index, SumOfSquares(values + at, std::min(kBlock, count - at))});
    at += kBlock;
  }
}

}  // namespace equipoise
