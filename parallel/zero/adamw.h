#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/parameter.h"
#include "parallel/shards.h"
#include "parallel/zero/step_bound.h"

namespace equipoise {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
};

// Parameters that share their settings; indices into FlatParameters::parameters().
struct ParameterGroup {
  std::vector<size_t> indices;
  double lr_factor = 1.0;
  double weight_decay = 0.0;
};

// AdamW on the fp32 master weights of one rank's shard. The moments are flat fp32 buffers laid out
// as the shard: with one rank, like FlatParameters::gradient(). Frozen parameters have none.
class AdamW {
 public:
  // The whole of the parameters. REQUIRES: every trainable parameter in exactly one group, no
  // frozen one in any. `parameters` must outlive this object.
  AdamW(FlatParameters& parameters, std::vector<ParameterGroup> groups,
        const AdamWOptions& options);
  // `rank`'s shard of them.
  AdamW(FlatParameters& parameters, std::vector<ParameterGroup> groups, const AdamWOptions& options,
        const Shards& shards, int rank);

  // Where the masters are lent (see FlatParameters): keeps this shard's copy of them. To be called
  // once, when weights have been set; does nothing where every rank has all masters.
  void TakeMasters();
  // Zero moments. Where masters are lent there are none before: to be called once, when those have
  // been dropped, so that both never are in memory together.
  void MakeMoments();

  // One update of the master weights from the gradients: p -= lr * lr_factor * (m / sqrt(v) + ...),
  // with decoupled weight decay and bias correction. Leaves the gradients as they are; the compute
  // copy is the caller's to update.
  void Step(double lr);
  // Whether Step(lr) would leave finite weights and moments only. Tried on copies, a few elements
  // at a time: takes longer than the step, and changes nothing.
  bool StepIsFinite(double lr) const;
  // Largest magnitudes of the shard; infinite where there is a NaN.
  StepBound Largest() const;
  const std::vector<ParameterGroup>& groups() const { return groups_; }
  const AdamWOptions& options() const { return options_; }
  // Multiplies the shard's gradients.
  void ScaleGradients(double factor);

  // Updates done, for the bias correction.
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }

  // What the shard holds of a trainable parameter: ranges of its elements, ascending.
  std::vector<Range> Runs(size_t index) const;
  // Its elements of those ranges, one after the other: views that checkpoints write and read. With
  // one rank in the parameter's shape. Masters are a copy where several runs are cut out of whole
  // masters.
  at::Tensor exp_avg(size_t index) const { return View(exp_avg_, index); }
  at::Tensor exp_avg_sq(size_t index) const { return View(exp_avg_sq_, index); }
  at::Tensor Master(size_t index) const;
  // This rank's masters of a bucket, in the order of the shard. REQUIRES: masters were lent.
  at::Tensor MasterSlice(size_t bucket) const;

 private:
  Range Whole(size_t index) const;
  at::Tensor View(const at::Tensor& shard, size_t index) const;
  at::Tensor ShardOfZeros() const;

  // The shard's runs of a group's elements, alike in all four.
  struct GroupRuns {
    std::vector<at::Tensor> masters, gradients, averages, squares;
  };
  GroupRuns RunsOf(const ParameterGroup& group) const;
  // One update of them, the number `step`.
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

// Splits the trainable parameters of each module's factor in two: those of two or more dimensions
// decay, norms and biases do not. `lr_factor[i]` belongs to parameter i.
std::vector<ParameterGroup> DecayGroups(const std::vector<Parameter*>& parameters,
                                        const std::vector<double>& lr_factor, double weight_decay);

}  // namespace equipoise
