#pragma once

#include <cstddef>
#include <vector>

#include "parallel/parameter.h"

namespace equipoise {

// Parameters that share a learning rate and a weight decay.
struct ParameterGroup {
  std::vector<size_t> indices;  // into FlatParameters::parameters()
  double lr_factor = 1.0;
  double weight_decay = 0.0;
};

// Groups the trainable parameters by learning-rate factor and by decay: parameters of two or more
// dimensions decay, norms and biases do not. `lr_factor[i]` belongs to parameter i.
std::vector<ParameterGroup> DecayGroups(const std::vector<Parameter*>& parameters,
                                        const std::vector<double>& lr_factor, double weight_decay);

}  // namespace equipoise
