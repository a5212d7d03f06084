#pragma once

#include <cstdint>

namespace equipoise {

// What a micro-batch asks of a layer.
struct LayerLoad {
  int64_t tiles = 0;
  int64_t tokens = 0;
  // (query, key) pairs of causal attention: the sum of n (n + 1) / 2 over segments of n tokens.
  double token_pairs = 0;
  int64_t targets = 0;  // tokens with a loss: the head works on them alone
};

// v tiles and t tokens in one segment, each with a target: the most that t tokens can cost.
inline LayerLoad SingleSegment(int64_t tiles, int64_t tokens) {
  return {tiles, tokens, 0.5 * static_cast<double>(tokens) * static_cast<double>(tokens + 1),
          tokens};
}

}  // namespace equipoise
