#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"
#include "parallel/shards.h"
#include "parallel/zero/square_nodes.h"
#include "parallel/zero/tree_sum.h"

namespace equipoise {

// The 2-norm of the gradients of all trainable parameters together. The squares of each tensor are
// summed in fp64 in a tree of fixed blocks, and the tensors' sums are added in the order of their
// names, so that the norm depends neither on the pipeline's stages, nor on sharding, nor on the
// number of threads. Not finite when a gradient is not. This form is for a rank that has whole
// gradients of the whole model.
double GradientNorm(const std::vector<Parameter*>& parameters);

// GradientNorm() of a model distributed over ranks: over the `data` ranks by slices of the flat
// gradient (ZeRO), over the other ranks of `world` by layers and by parts of tensors. Each part of
// a tensor is counted once, by the rank whose TensorPart is its owner; parts are added in the order
// of their place in the tensor. Every rank gets the same bits, and with the same parts those of
// GradientNorm().
class DistributedNorm {
 public:
  // Collective over `world`. `shards`: the slices of the gradient that each rank of `data` has
  // reduced; of one rank where every rank has the whole sum. `counts`: whether this rank's parts
  // are those that are counted, where other ranks of `world` hold copies of them that `data` has
  // not. All but `shards` must outlive it.
  DistributedNorm(FlatParameters& parameters, const Shards& shards, Communicator& data,
                  Communicator& world, bool counts = true);
  double Compute();  // collective over `world`

 private:
  // A node of a parameter's tree; its value comes from `rank`, at index `place` of what that sends.
  struct Place {
    size_t parameter;
    TreeNode node;
    int rank;
    int64_t place;
  };
  struct OwnRun {
    size_t parameter;
    Shards::Run place;
  };
  void ListNodes(const Shards& shards);
  void NameParts();
  int64_t FirstBlock(const OwnRun& run) const;
  std::vector<SquaredRun> RunsOnGpu() const;
  std::vector<TreeSum> SumsOfRuns();
  std::vector<double> SquaresOfWhole();
  std::vector<double> SquaresOfShards();

  FlatParameters& parameters_;
  Communicator& data_;
  Communicator& world_;
  bool sharded_, counts_;
  std::vector<Place> places_;  // in the order of the flat gradient
  std::vector<OwnRun> mine_;
  int64_t most_nodes_ = 0;  // that one rank sends
  // All parts of all tensors, numbered in the order of names and places. part_of_: the number of
  // each of this rank's parameters, -1 where another rank counts it; part_ends_: for each tensor
  // the end of its parts.
  std::vector<int64_t> part_of_;
  std::vector<int64_t> part_ends_;
  std::optional<GpuSquares> gpu_squares_;  // where the gradient is on a GPU
};

// The factor that brings gradients of this norm to a norm of at most `max_norm`, as in
// torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)). 1 when `max_norm` is 0 (no
// clipping).
double ClipFactor(double norm, double max_norm);

}  // namespace equipoise
