#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/spec/image_spec.h"
#include "models/spec/tensor_parallel.h"

namespace equipoise {

struct Decoding;

constexpr int64_t kNoTarget = -100;  // a token without a loss

// A micro-batch: samples packed into one row of tokens and one stack of image tiles. Every stage
// has all of it; only hidden states are sent between stages. It may have no tiles, and no tokens.
struct MicroBatch {
  at::Tensor input_ids;  // [tokens] int64
  // [tokens] int64: the token to predict at each position (already shifted by one within its
  // segment), kNoTarget where there is none. Undefined when no loss is computed.
  at::Tensor targets;
  at::Tensor target_weights;  // [tokens] fp32, weight of each target; undefined: all 1
  // [tokens] int64, restarting at 0 in each segment; with multimodal positions
  // (models/spec/grid_positions.h) [3, tokens]: times, rows and columns.
  at::Tensor position_ids;
  // Segment s covers tokens cu_seqlens[s] .. cu_seqlens[s + 1]; attention never leaves a segment.
  std::vector<int64_t> cu_seqlens;
  // [tiles, 3, size, size]; of pictures that are grids of patches [patches, numbers of a patch],
  // each picture square by square of the patches that become one token. May be undefined. Bytes
  // (uint8), as a loader gives them; layers take fp32, normalized (ops::PixelScale).
  at::Tensor pixel_values;
  // [pictures, 2] int64, on the CPU, where ImageSpec::lists_grids(): rows and columns of patches,
  // those of a video once for each of its times, which are pictures to the encoder; or height and
  // width in pixels, or what stands for a video (models/spec/any_resolution.h).
  at::Tensor image_grids;
  // [image tokens] int64: positions in the row that the image features replace, in order.
  at::Tensor image_positions;

  // With context ranks: the features that this rank's pictures have for each of them, the first
  // sent[0] for rank 0, then sent[1] for rank 1; those that it gets from each; and [received] where
  // these lie among its own tokens. ForContextRank() fills it.
  struct Features {
    std::vector<int64_t> sent, received;
    at::Tensor positions;
  };
  Features features;

  int64_t planned_targets = 0;   // targets according to the cost index
  std::vector<int64_t> samples;  // ids of the samples, for messages
  // What dropout's masks are drawn from, beside names and positions: the same for these samples in
  // this step on every mesh. 0: no dropout.
  uint64_t noise = 0;
  const Decoding* decoding = nullptr;  // generation only: its sequences (kv_cache.h)

  int64_t tokens() const { return input_ids.defined() ? input_ids.size(0) : 0; }
  int64_t tiles() const { return pixel_values.defined() ? pixel_values.size(0) : 0; }
};

// The grids of a micro-batch's pictures, and a tensor of grids, where each time of a video has one.
std::vector<PatchGrid> GridsOf(const MicroBatch& batch);
at::Tensor GridTensor(const std::vector<PatchGrid>& grids);

// The load of its pictures on a model that takes them so.
PictureLoad PicturesOf(const MicroBatch& batch, const ImageSpec& images);

// What a context rank takes of a micro-batch on the CPU: all its tokens, of which its layers pick
// their own, and a part of its pictures, one behind the other, with about as many patches as others
// have. A rank that would have none takes the first too, whose features go nowhere: all ranks make
// the same passes then, and none waits longer for it.
MicroBatch ForContextRank(MicroBatch batch, const ImageSpec& images,
                          const ContextParallel& context);

// Moves ids and positions to `device`. Pictures stay on the CPU: only the first stage needs them.
// So do targets.
MicroBatch OnDevice(MicroBatch batch, at::Device device);

// Copies what is to be moved to `device`, pictures too, to pinned memory, from where it is moved
// without a wait; for the CPU nothing. Costs the caller the time of a copy: for a loader's thread.
MicroBatch PinnedFor(MicroBatch batch, at::Device device);

}  // namespace equipoise
