#pragma once

#include <array>
#include <string>
#include <vector>

#include "balance/costs/profile.h"

namespace equipoise {

// A constant, and a number for each of patches, tokens, token pairs, targets, patch pairs and image
// tokens, in this order; none is negative.
struct LoadFit {
  std::array<double, 7> coefficients = {};
  // Root mean square of (fitted - measured) / measured.
  double residual = 0;

  double At(const LayerLoad& load) const;
};

// The fit whose relative errors have the least sum of squares; exact: every subset of coefficients
// is solved for. Where tiles of one size were measured, patch pairs and image tokens grow as
// patches do, which stand for all three. Measurements of 0 are left out; all zeros where none
// remains.
LoadFit FitLoads(const std::vector<LayerLoad>& loads, const std::vector<double>& measured);

// A fit to the measurements of one layer kind and shape.
struct LayerFit {
  LoadFit forward_s, input_gradient_s, weight_gradient_s;
  LoadFit work_bytes;
  std::array<LoadFit, 4> kept_bytes;  // by Recompute
  // Residual of the fit: root mean square of the relative errors of forward + backward.
  double residual = 0;
  int measurements = 0;  // 0: the profile has none of the layer
};

// The fit of a layer as `tensor` ranks share it. Of targets the head's cost alone depends; where
// all its rows have one on every token, or the profile is of a version that did not count them, it
// is fitted to tokens.
LayerFit FitLayer(const Profile& profile, const std::string& layer_kind, const std::string& shape,
                  int tensor = 1);

}  // namespace equipoise
