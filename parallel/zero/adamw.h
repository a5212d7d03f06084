#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/parameter.h"
#include "parallel/shards.h"
#include "parallel/zero/step_bound.h"

namespace equipoise {

// Hyperparameters of AdamW that all parameters share.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
};

// Parameters that share a learning rate and a weight decay.
struct ParameterGroup {
  std::vector<size_t> indices;  // into FlatParameters::parameters()
  double lr_factor = 1.0;
  double weight_decay = 0.0;
};

// AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2) on the fp32 master weights of one
// rank's shard. The moments are flat fp32 buffers [shards.shard_numel()], laid out as the shard;
// with one rank, as FlatParameters::gradient(). Frozen parameters have none.
class AdamW {
 public:
  // One rank that updates all parameters. REQUIRES: every trainable parameter in exactly one group,
  // no frozen one in any. `parameters` must outlive this object.
  AdamW(FlatParameters& parameters, std::vector<ParameterGroup> groups,
        const AdamWOptions& options);
  // The optimizer of `rank`'s shard.
  AdamW(FlatParameters& parameters, std::vector<ParameterGroup> groups, const AdamWOptions& options,
        const Shards& shards, int rank);

  // Copies this shard of the masters where they alias the gradient (see FlatParameters). To be
  // called once, when weights have been set; does nothing where every rank has all masters.
  void TakeMasters();
  // Allocates moments of zeros. Where masters alias the gradient the constructor leaves this to the
  // caller: to be called once, after FlatParameters::DropMasters(), so that whole masters and
  // moments are never in memory together.
  void MakeMoments();

  // One update of the master weights p from the gradients, with the bias-corrected moments m and v:
  //   p -= lr * lr_factor * (m / (sqrt(v) + eps) + weight_decay * p)
  // Leaves the gradients as they are; the caller updates the compute copy.
  void Step(double lr);
  // Whether Step(lr) would leave only finite weights and moments. Tries the step on copies, 2^18
  // elements at a time: slower than the step itself, and changes nothing.
  bool StepIsFinite(double lr) const;
  // Largest magnitudes of the shard's weights and moments; infinite where there is a NaN.
  StepBound Largest() const;
  const std::vector<ParameterGroup>& groups() const { return groups_; }
  const AdamWOptions& options() const { return options_; }
  // Multiplies the shard's gradients by a factor (clipping).
  void ScaleGradients(double factor);

  // Updates done so far; the bias correction uses it.
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }

  // The part of a trainable parameter in this shard: ranges of its elements, ascending.
  std::vector<Range> Runs(size_t index) const;
  // Moments and masters of those elements, concatenated, fp32: views that checkpoints write and
  // read; with one rank, in the parameter's shape. Master() is a copy where several ranges are cut
  // out of whole masters.
  at::Tensor exp_avg(size_t index) const { return View(exp_avg_, index); }
  at::Tensor exp_avg_sq(size_t index) const { return View(exp_avg_sq_, index); }
  at::Tensor Master(size_t index) const;
  // This rank's masters of a bucket, in the order of the shard. REQUIRES: TakeMasters() has copied
  // them.
  at::Tensor MasterSlice(size_t bucket) const;

 private:
  Range Whole(size_t index) const;
  at::Tensor View(const at::Tensor& shard, size_t index) const;
  at::Tensor ShardOfZeros() const;

  // The shard's runs of a group's elements; the four lists are parallel.
  struct GroupRuns {
    std::vector<at::Tensor> masters, gradients, averages, squares;
  };
  GroupRuns RunsOf(const ParameterGroup& group) const;
  // Update number `step` (1 = the first) of those runs.
  void Update(GroupRuns& runs, const ParameterGroup& group, double lr, int64_t step) const;

  FlatParameters& parameters_;
  std::vector<ParameterGroup> groups_;
  AdamWOptions options_;
  Shards shards_;
  int rank_;
  at::Tensor exp_avg_, exp_avg_sq_;
  at::Tensor masters_;  // undefined where every rank has all masters
  int64_t steps_ = 0;
};

// Groups the trainable parameters by learning-rate factor and by decay: parameters of two or more
// dimensions decay, norms and biases do not. `lr_factor[i]` belongs to parameter i.
std::vector<ParameterGroup> DecayGroups(const std::vector<Parameter*>& parameters,
                                        const std::vector<double>& lr_factor, double weight_decay);

}  // namespace equipoise
