#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "parallel/shards.h"
#include "parallel/zero/tree_sum.h"

namespace equipoise {

// Part of a tensor in a flat gradient: it begins block `first_block` of its tensor.
struct SquaredRun {
  Range flat;
  int64_t first_block = 0;
};

// The squares of runs of a flat fp32 gradient on a GPU, each summed to the nodes of its tensor's
// tree (tree_sum.h) as far as a node is within the run. The host reads the device once, for all
// runs together: a number for every 4096 elements, and some at the runs' ends.
//
// By the program's own kernel (parallel/zero/kernels), where it is loaded: in fp64, in one launch,
// to the CPU's bits. By LibTorch's, a block's sum is computed in fp32, as the 2-norm of its 64
// elements, and is infinite where one of them exceeds about 1e19; sums of blocks are fp64. They do
// not depend on how tensors are cut into runs, but are not the CPU's bits.
class GpuSquares {
 public:
  // REQUIRES: runs ascend, each begins and ends (or its tensor ends) at a multiple of
  // Shards::kBlock elements of `flat`; what follows a tensor's end there is zero.
  explicit GpuSquares(std::vector<SquaredRun> runs);

  // The sum of each run.
  std::vector<TreeSum> Sums(const at::Tensor& flat);

 private:
  // Ranges of blocks, counted in the concatenation of all spans.
  struct Piece {
    Range blocks;
    std::vector<int64_t> single, nodes;  // first blocks, from the piece's begin on
    at::Tensor single_on_device, nodes_on_device;
  };
  void AddSpan(Range flat);
  void AddPieces();
  void PlaceRun(const SquaredRun& run, int64_t first);
  at::Tensor Values(const at::Tensor& blocks, Piece& piece) const;
  void ListNodes(at::Device device);
  std::vector<TreeSum> SumsByOwnKernel(const at::Tensor& flat);

  std::vector<SquaredRun> runs_;
  std::vector<Range> spans_;  // of the flat gradient, which the runs cover
  int64_t num_blocks_ = 0;
  std::vector<Piece> pieces_;
  // For each run its nodes in order: where the value stands among those that the host reads, and
  // the level.
  struct Place {
    size_t piece;
    int64_t index;  // among the piece's single blocks or nodes
    int level;
  };
  std::vector<std::vector<Place>> places_;
  // Of the own kernel, listed when it is first taken: each run's nodes, and where they lie.
  std::vector<std::vector<TreeNode>> own_nodes_;
  at::Tensor own_nodes_on_device_;
};

}  // namespace equipoise
