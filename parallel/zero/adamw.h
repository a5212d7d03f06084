#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/parameter.h"

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

// AdamW on the fp32 master weights. The moments are flat fp32 buffers laid out like
// FlatParameters::gradient(); frozen parameters have none.
class AdamW {
 public:
  // REQUIRES: every trainable parameter in exactly one group, no frozen one in any. `parameters`
  // must outlive this object.
  AdamW(FlatParameters& parameters, std::vector<ParameterGroup> groups,
        const AdamWOptions& options);

  // One update of the master weights from the gradients: p -= lr * lr_factor * (m / sqrt(v) + ...),
  // with decoupled weight decay and bias correction. Leaves the gradients as they are; the compute
  // copy is the caller's to update.
  void Step(double lr);

  // Updates done, for the bias correction.
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }

  // Moments of a trainable parameter, in its shape: views that checkpoints write and read.
  at::Tensor exp_avg(size_t index) const { return View(exp_avg_, index); }
  at::Tensor exp_avg_sq(size_t index) const { return View(exp_avg_sq_, index); }

 private:
  at::Tensor View(const at::Tensor& buffer, size_t index) const;

  FlatParameters& parameters_;
  std::vector<ParameterGroup> groups_;
  AdamWOptions options_;
  at::Tensor exp_avg_, exp_avg_sq_;
  int64_t steps_ = 0;
};

// Splits the trainable parameters of each module's factor in two: those of two or more dimensions
// decay, norms and biases do not. `lr_factor[i]` belongs to parameter i.
std::vector<ParameterGroup> DecayGroups(const std::vector<Parameter*>& parameters,
                                        const std::vector<double>& lr_factor, double weight_decay);

}  // namespace equipoise
