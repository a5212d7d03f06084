#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"
#include "parallel/shards.h"
#include "parallel/zero/adamw.h"
#include "parallel/zero/grad_norm.h"

namespace equipoise {

// How the data ranks of a group share a flat gradient: not at all (ZeRO 0), or by slices (ZeRO 1).
Shards ZeroShards(int zero, const FlatParameters& parameters, const Communicator& data,
                  int64_t bucket_bytes);

// The optimizer of one rank of a mesh. With shards of several ranks (ZeRO 1), each data rank keeps
// and updates its shard of masters and moments, and the updated weights are gathered in the compute
// dtype, bucket by bucket. All ranks have the same bits as without sharding. Per step, after
// GradientReducer::Finish():
//
//   norm = optimizer.GradientNorm();   optimizer.ScaleGradients(factor);   optimizer.Step(lr);
//
// No step leaves a weight or moment that is not finite.
//
// All collective over their group. Not thread-safe.
class ZeroOptimizer {
 public:
  struct Groups {
    Communicator& data;   // ranks with the same parameters
    Communicator& world;  // all ranks of the model
  };
  // Collective. `parameters` and the groups must outlive it.
  ZeroOptimizer(FlatParameters& parameters, std::vector<ParameterGroup> groups,
                const AdamWOptions& options, const Shards& shards, Groups ranks);

  // The weights have been set, and the compute copy updated: to be called once before the first
  // step. A rank that shards keeps what it needs of the masters and drops those that were lent.
  void TakeMasters();

  double GradientNorm() { return largest_gradient_ = norm_.Compute(); }
  // Of the gradients that this rank has reduced.
  void ScaleGradients(double factor);
  // AdamW, and the values of the trainable parameters. False where a weight or a moment of any rank
  // would not be finite: then nothing has changed on any. Nearly always that follows from bounds;
  // where it does not, each rank tries the step on copies first, and they agree.
  bool Step(double lr);

  int64_t steps() const { return adamw_.steps(); }
  // To be called after moments were read.
  void set_steps(int64_t steps);

  // A tensor of a checkpoint, as far as it is on this rank: ranges of the elements of the
  // parameter, one after the other in `values` (contiguous; fp32, a frozen weight as it is computed
  // with).
  struct State {
    std::string name;  // that of the parameter, or exp_avg.NAME, exp_avg_sq.NAME
    const Parameter* parameter = nullptr;
    std::vector<Range> runs;
    at::Tensor values;
  };
  // The moments, to be written and read in place. REQUIRES: TakeMasters() was called.
  std::vector<State> Moments() const;
  // What of weights and moments is this rank's to save: over all ranks everything once. Data ranks
  // that hold the same share the work by whole parameters. REQUIRES: TakeMasters() was called.
  std::vector<State> ToSave() const;

 private:
  bool sharded() const { return shards_.ranks() > 1; }
  Range FrozenRange(const Parameter& parameter) const;
  bool Saves(size_t index) const;
  State FrozenState(size_t index) const;
  bool StepIsFinite(double lr);
  void MeasureBound();

  FlatParameters& parameters_;
  Shards shards_;
  Communicator& data_;
  Communicator& world_;
  AdamW adamw_;
  DistributedNorm norm_;

  // The same on every rank of `world`.
  std::optional<StepBound> bound_;  // of weights and moments; absent: not measured yet
  double largest_lr_factor_ = 0, largest_decay_ = 0;
  double largest_gradient_ = std::numeric_limits<double>::infinity();  // of the next step
};

}  // namespace equipoise
