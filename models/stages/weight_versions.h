#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/parameter.h"

namespace equipoise {

// The two versions of a rank's trained weights where updates are delayed by a step (PipeDream-2BW,
// arXiv 2006.09503, section 3.1): the newest, and those before the last update. All passes of a
// step are of one version, which is the newest while the step before it still runs, and the other
// from then on. Passes of two steps run in turn, so each version comes with gradients of its own.
//
// What layers see is switched, parameter by parameter: handles alone change.
class WeightVersions {
 public:
  // REQUIRES: `parameters` has whole values and gradients, and outlives this.
  explicit WeightVersions(FlatParameters& parameters);

  // Begins a step: its gradients are what its passes ahead have added, else zero. In the first one
  // both versions are the same. `makes_next`: the parameters that passes of the next step add
  // gradients to, trained ones among others. REQUIRES: gradients are zero.
  void BeginStep(const std::vector<const Parameter*>& makes_next);
  // What passes of this step, or of the next one, use. Outside of passes: the newest weights and
  // this step's gradients.
  void ShowThisStep() { Show(kThisStep); }
  void ShowNextStep() { Show(kNextStep); }
  void ShowNewest() { Show(kNewest); }
  // Whether layers see the newest weights.
  bool shows_newest() const { return shown_ != kThisStep; }
  // Ends a step, before its update: the weights that are the newest now are those of the next
  // step. Waits for values that are on their way.
  void EndStep();
  // Forgets gradients of passes ahead.
  void Drop();

  // The weights before the last update: those of the next step's passes. Of the trained
  // parameters, laid out as FlatParameters::compute(). Undefined while none is known.
  const at::Tensor& previous() const { return previous_; }
  // The part of a parameter. REQUIRES: trainable.
  at::Tensor PreviousOf(size_t index) const;
  // Sets them all: from the newest, until they are written.
  void CopyNewest();

 private:
  enum Shown : uint8_t { kNewest, kThisStep, kNextStep };
  // A trained parameter and what its handle may show.
  struct Views {
    Parameter* parameter;
    int64_t offset;
    at::Tensor newest, gradient;         // this step's
    at::Tensor previous, next_gradient;  // undefined where there are none
  };
  // Gradients of the next step, of parameters that lie beside each other.
  struct NextPart {
    int64_t offset;  // in the flat gradient
    at::Tensor flat;
  };
  void Show(Shown what);
  static at::Tensor ViewOf(const at::Tensor& flat, int64_t begin, const Views& of);
  void AddNextGradients(size_t first, size_t end);

  FlatParameters& parameters_;
  std::vector<Views> views_;
  at::Tensor previous_;
  std::vector<NextPart> next_;
  Shown shown_ = kNewest;
};

}  // namespace equipoise
