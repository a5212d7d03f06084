#pragma once

#include <cstdint>

namespace equipoise {

// The work that pictures bring to a model, whatever its encoder makes of them.
struct PictureLoad {
  int64_t patches = 0;  // rows that the encoder computes on; a class token is one, too
  // (query, key) pairs of its attention: the sum of n * n over segments of n rows.
  double patch_pairs = 0;
  int64_t image_tokens = 0;  // rows that the language model gets

  PictureLoad& operator+=(const PictureLoad& other) {
    patches += other.patches;
    patch_pairs += other.patch_pairs;
    image_tokens += other.image_tokens;
    return *this;
  }
  bool operator==(const PictureLoad&) const = default;
};

// The work that a micro-batch brings to a layer.
struct LayerLoad {
  int64_t patches = 0;  // these three as in PictureLoad
  double patch_pairs = 0;
  int64_t image_tokens = 0;
  int64_t tokens = 0;
  // (query, key) pairs of causal attention: the sum of CausalPairs() over segments.
  double token_pairs = 0;
  int64_t targets = 0;  // tokens with a loss: the head works on them alone

  bool operator==(const LayerLoad&) const = default;
};

inline double CausalPairs(int64_t tokens) {
  return 0.5 * static_cast<double>(tokens) * static_cast<double>(tokens + 1);
}

// Tokens in one segment, each with a target: the most that so many tokens can cost.
inline LayerLoad SingleSegment(const PictureLoad& pictures, int64_t tokens) {
  return {pictures.patches, pictures.patch_pairs, pictures.image_tokens,
          tokens,           CausalPairs(tokens),  tokens};
}

}  // namespace equipoise
