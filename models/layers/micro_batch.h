#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace equipoise {

class KvCache;

constexpr int64_t kNoTarget = -100;  // a token without a loss

// A micro-batch: samples packed into one row of tokens and one stack of image tiles. Every stage
// has all of it; only hidden states are sent between stages. It may have no tiles, and no tokens.
struct MicroBatch {
  at::Tensor input_ids;  // [tokens] int64
  // [tokens] int64: the token to predict at each position (already shifted by one within its
  // segment), kNoTarget where there is none. Undefined when no loss is computed.
  at::Tensor targets;
  at::Tensor target_weights;  // [tokens] fp32, weight of each target; undefined: all 1
  at::Tensor position_ids;    // [tokens] int64, restarting at 0 in each segment
  // Segment s covers tokens cu_seqlens[s] .. cu_seqlens[s + 1]; attention never leaves a segment.
  std::vector<int64_t> cu_seqlens;
  at::Tensor pixel_values;  // [tiles, 3, size, size] fp32, normalized; may be undefined
  // [image tokens] int64: positions in the row that the image features replace, in order.
  at::Tensor image_positions;

  int64_t planned_targets = 0;   // targets according to the cost index
  std::vector<int64_t> samples;  // ids of the samples, for messages
  KvCache* cache = nullptr;      // generation only: keys and values of earlier tokens

  int64_t tokens() const { return input_ids.defined() ? input_ids.size(0) : 0; }
  int64_t tiles() const { return pixel_values.defined() ? pixel_values.size(0) : 0; }
};

// Moves ids and positions to `device`. Pictures stay on the CPU: only the first stage needs them.
// So do targets.
MicroBatch OnDevice(MicroBatch batch, at::Device device);

}  // namespace equipoise
