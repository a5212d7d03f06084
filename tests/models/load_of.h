#pragma once

#include "models/families/families.h"
#include "models/spec/layer_load.h"

namespace equipoise {

// A micro-batch of so many tiles, as the model takes them, and tokens in one segment.
inline LayerLoad LoadOf(const ModelConfig& config, int64_t tiles, int64_t tokens) {
  return SingleSegment(ImageSpecOf(config).LoadOfTiles(tiles), tokens);
}

}  // namespace equipoise
