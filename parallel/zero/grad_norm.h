#pragma once

#include <vector>

#include "parallel/parameter.h"

namespace equipoise {

// The 2-norm of all gradients of the trainable parameters together: fp64 squares of each tensor,
// added in the order of the names, so that it does not depend on how layers are split over ranks
// nor on the number of threads. Not finite when a gradient is not.
double GradientNorm(const std::vector<Parameter*>& parameters);

// What gradients of that norm are multiplied with so that their norm is at most `max_norm`, as
// torch.nn.utils.clip_grad_norm_ does it. 1 when `max_norm` is 0 (no clipping).
double ClipFactor(double norm, double max_norm);

}  // namespace equipoise
