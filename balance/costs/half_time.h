#pragma once

#include <cstdint>

#include "balance/costs/cluster.h"
#include "balance/costs/program.h"
#include "models/spec/context_heads.h"
#include "models/spec/layer_cost.h"

namespace equipoise {

// Seconds of one layer for one micro-batch.
struct LayerTimes {
  double forward_s = 0, input_gradient_s = 0, weight_gradient_s = 0;
  double backward_s() const { return input_gradient_s + weight_gradient_s; }
};

// Seconds of half a layer whose weights are trained, without the sums of tensor ranks.
struct HalfTimes : LayerTimes {
  // Parts of forward_s: products (without attention's), and the core of attention.
  double products_s = 0, core_s = 0;
  // What RunStyle::selective computes again in backward; part of input_gradient_s.
  double again_s = 0;
};

struct HalfSetting {
  const Cluster& cluster;
  const RunStyle& style;
  int64_t element_bytes = 2;
  int row_shares = 1;           // ranks that share out the rows between split products
  LinkModel context_link = {};  // between context ranks
  bool fp8 = false;             // products of forward and of the input's gradient are in fp8
};

// How context ranks share out the attention of a tensor rank's decoder block; default where they
// do not, as in an encoder.
ContextSplit ContextSplitOf(const HalfCost& half, const RunStyle& style);
// Elements of keys and values that a context rank has in attention beyond its share of them.
double CopiedKeysValues(const HalfCost& half, const LayerLoad& load, const RunStyle& style);

// Products by GemmSeconds(), passes by the bytes that the program moves, attention by its kernel.
HalfTimes HalfSeconds(const HalfCost& half, const LayerLoad& load, const HalfSetting& setting);

// Bytes of scores that a half keeps for backward: none but where products write them to memory.
double KeptScoreBytes(const HalfCost& half, const LayerLoad& load, const RunStyle& style);

}  // namespace equipoise
