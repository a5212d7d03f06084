#pragma once

#include <cstdint>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"
#include "parallel/shards.h"
#include "parallel/zero/tree_sum.h"

namespace equipoise {

// The 2-norm of all gradients of the trainable parameters together: fp64 squares of each tensor,
// summed in a tree of fixed blocks, and the tensors' sums added in the order of their names. So it
// does not depend on how layers are split over ranks, on the sharding, nor on the number of
// threads. Not finite when a gradient is not. This form is for a rank that has whole gradients of
// the whole model.
double GradientNorm(const std::vector<Parameter*>& parameters);

// The same for a model that is spread over ranks: over the `data` ranks by slices of the flat
// gradient (ZeRO), over the others of `world` by layers and by parts of tensors. Each part of a
// tensor is counted once, by the rank whose TensorPart is its owner; parts are added in the order
// of their place in the tensor. The same bits on every rank, and with the same parts the same as
// GradientNorm's.
class DistributedNorm {
 public:
  // Collective over `world`. `shards`: what of the gradient each rank of `data` has reduced; of
  // one rank where all have all of it. Everything given must outlive it, save `shards`.
  DistributedNorm(FlatParameters& parameters, const Shards& shards, Communicator& data,
                  Communicator& world);
  double Compute();  // collective over `world`

 private:
  // A node of a parameter's tree, and which rank sends its value at which place.
  struct Place {
    size_t parameter;
    TreeNode node;
    int rank;
    int64_t place;
  };
  struct OwnRun {
    size_t parameter;
    Range flat;
  };
  void ListNodes(const Shards& shards);
  void NameParts();
  std::vector<double> SquaresOfWhole() const;
  std::vector<double> SquaresOfShards();

  FlatParameters& parameters_;
  Communicator& data_;
  Communicator& world_;
  bool sharded_;
  std::vector<Place> places_;  // in the order of the flat gradient
  std::vector<OwnRun> mine_;
  int64_t most_nodes_ = 0;  // of a rank
  // Parts of tensors in the order of names and places: of each of this rank's parameters the
  // number, -1 where another rank counts it; of each tensor the end of its parts.
  std::vector<int64_t> part_of_;
  std::vector<int64_t> part_ends_;
};

// What gradients of that norm are multiplied with so that their norm is at most `max_norm`, as
// torch.nn.utils.clip_grad_norm_ does it. 1 when `max_norm` is 0 (no clipping).
double ClipFactor(double norm, double max_norm);

}  // namespace equipoise
