#pragma once

#include <cstdint>

#include "parallel/kernels/row_team.h"

namespace equipoise::kernels {

// The blocks of a node of a tensor's tree (tree_sum.h): elements from `flat` on, the last block
// with what the tensor has of it. REQUIRES: 1 to kMostBlocks blocks, a power of two.
struct SquareNode {
  int64_t flat, size;
};

// Row r: the sum of the squares of node r, in fp64. The additions are those of the CPU
// (sum_of_squares.h, tree_sum.h) in their order, so that the bits are the same: of a block 16
// lanes, the lanes one by one, what fills no lanes; then pairs of blocks, and pairs of pairs. The
// square of a float is exact in fp64. Every element is read once.
struct SquareNodeRow {
  static constexpr int64_t kBlock = 64, kMostBlocks = 64;  // Shards::kBlock; of a node

  const SquareNode* nodes;
  const float* values;
  double* sums;

  static constexpr int64_t kLanes = 16;
  struct Shared {
    // Of each block a lane more than there are, so that threads that read the same lane of
    // different blocks do not meet in a bank.
    double lanes[kMostBlocks * (kLanes + 1)];
    double blocks[kMostBlocks];
  };
  static constexpr int kPack = 1;

  template <int, class Team>
  EQUIPOISE_DEVICE void Run(int64_t row, const Team& team) const {
    const SquareNode node = nodes[row];
    const float* from = values + node.flat;
    const int64_t blocks = (node.size + kBlock - 1) / kBlock;
    for (int64_t i = team.thread; i < blocks * kLanes; i += team.threads) {
      const int64_t block = i / kLanes, lane = i % kLanes;
      const int64_t end = block * kBlock + InLanes(node, block);
      double sum = 0;
      for (int64_t j = block * kBlock + lane; j < end; j += kLanes) sum += Square(from[j]);
      team.shared.lanes[block * (kLanes + 1) + lane] = sum;
    }
    team.Wait();
    for (int64_t block = team.thread; block < blocks; block += team.threads) {
      double sum = 0;
      for (int64_t lane = 0; lane < kLanes; ++lane)
        sum += team.shared.lanes[block * (kLanes + 1) + lane];
      const int64_t begin = block * kBlock, end = begin + Size(node, block);
      for (int64_t j = begin + InLanes(node, block); j < end; ++j) sum += Square(from[j]);
      team.shared.blocks[block] = sum;
    }
    team.Wait();
    for (int64_t step = 1; step < blocks; step *= 2) {
      for (int64_t i = team.thread; i < blocks / (2 * step); i += team.threads)
        team.shared.blocks[2 * step * i] += team.shared.blocks[2 * step * i + step];
      team.Wait();
    }
    if (team.thread == 0) sums[row] = team.shared.blocks[0];
    team.Wait();
  }

 private:
  EQUIPOISE_DEVICE static double Square(float value) { return static_cast<double>(value) * value; }
  // Elements of a block, and those of them that fill the lanes.
  EQUIPOISE_DEVICE static int64_t Size(const SquareNode& node, int64_t block) {
    const int64_t left = node.size - block * kBlock;
    return left < kBlock ? left : kBlock;
  }
  EQUIPOISE_DEVICE static int64_t InLanes(const SquareNode& node, int64_t block) {
    return Size(node, block) / kLanes * kLanes;
  }
};

}  // namespace equipoise::kernels
