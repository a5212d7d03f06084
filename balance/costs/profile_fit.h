#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "balance/costs/profile.h"

namespace equipoise {

// A linear function of a load: coefficients of a constant, patches, tokens, token pairs, targets,
// patch pairs, image tokens and window pairs, in this order; none is negative.
struct LoadFit {
  std::array<double, 8> coefficients = {};
  // Root mean square of the relative errors, (fitted - measured) / measured.
  double residual = 0;

  double At(const LayerLoad& load) const;
};

// Which errors are squared and summed. Absolute ones are for times: on a GPU small loads take as
// long as their launches, and a fit to these would price large ones, of which steps are made, too
// low.
enum class Errors : uint8_t { kRelative, kAbsolute };

// The fit with the least sum of squared errors; exact. Where tiles of one size were
// measured, patch pairs and image tokens are proportional to patches, whose coefficient then covers
// all three. Measurements of 0 are left out; all coefficients are 0 where none remains.
LoadFit FitLoads(const std::vector<LayerLoad>& loads, const std::vector<double>& measured,
                 Errors errors = Errors::kRelative);

// A fit to the measurements of one layer kind and shape.
struct LayerFit {
  LoadFit forward_s, input_gradient_s, weight_gradient_s;
  LoadFit work_bytes;
  std::array<LoadFit, 4> kept_bytes;  // by Recompute
  // Residual of the fit: root mean square of the relative errors of forward + backward.
  double residual = 0;
  int measurements = 0;  // 0: the profile has none of the layer
};

// The fit of a layer on one of `tensor` tensor-parallel ranks. Only the head's cost depends on
// targets; where its measurements have a target at every token, or do not count targets, it is
// fitted to tokens.
LayerFit FitLayer(const Profile& profile, const std::string& layer_kind, const std::string& shape,
                  int tensor = 1);

}  // namespace equipoise
