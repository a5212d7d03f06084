#pragma once

#include <cstdint>

namespace equipoise {

// The load of pictures on a model, in units that any kind of encoder has.
struct PictureLoad {
  int64_t patches = 0;  // rows of the encoder, class tokens included
  // (query, key) pairs of the encoder's attention: the sum of n * n over segments of n rows.
  double patch_pairs = 0;
  int64_t image_tokens = 0;  // rows of the language model
  // The same pairs of layers whose attention is limited to windows; 0 where no layer is.
  double window_pairs = 0;

  PictureLoad& operator+=(const PictureLoad& other) {
    patches += other.patches;
    patch_pairs += other.patch_pairs;
    image_tokens += other.image_tokens;
    window_pairs += other.window_pairs;
    return *this;
  }
  bool operator==(const PictureLoad&) const = default;
};

// The load of a micro-batch on a layer.
struct LayerLoad {
  int64_t patches = 0;  // these three as in PictureLoad
  double patch_pairs = 0;
  int64_t image_tokens = 0;
  int64_t tokens = 0;
  // (query, key) pairs of causal attention: the sum of CausalPairs() over segments.
  double token_pairs = 0;
  int64_t targets = 0;      // tokens with a loss: the only ones that the head computes
  double window_pairs = 0;  // as in PictureLoad

  bool operator==(const LayerLoad&) const = default;
};

// (query, key) pairs of causal attention over one segment.
inline double CausalPairs(int64_t tokens) {
  return 0.5 * static_cast<double>(tokens) * static_cast<double>(tokens + 1);
}

// Load of one segment with a target at every token: the largest that so many tokens can have.
inline LayerLoad SingleSegment(const PictureLoad& pictures, int64_t tokens) {
  return {
      pictures.patches, pictures.patch_pairs, pictures.image_tokens, tokens, CausalPairs(tokens),
      tokens,           pictures.window_pairs};
}

}  // namespace equipoise
