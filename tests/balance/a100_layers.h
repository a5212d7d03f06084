#pragma once

#include <catch2/catch.hpp>
#include <string>

#include "balance/costs/cost_model.h"

namespace equipoise {

// 9 tiles of 448 pixels.
inline const LayerLoad kLoad = SingleSegment({9 * 1025, 9.0 * 1025 * 1025, 9 * 256}, 4096);

inline Cluster A100() {
  ClusterConfig config;
  config.preset = "a100-80g";
  return MakeCluster(config);
}

// The first layer of a kind.
inline int Find(const CostModel& costs, const std::string& kind) {
  for (int i = 0; i < costs.num_layers(); ++i) {
    if (costs.specs()[static_cast<size_t>(i)].kind == kind) return i;
  }
  FAIL("no such layer");
  return -1;
}

}  // namespace equipoise
