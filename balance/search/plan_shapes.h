#pragma once

#include <vector>

#include "balance/search/plan_request.h"

namespace equipoise {

// The plans to choose from, without stages and recomputation: every mesh that uses all ranks, with
// whole micro-batches for each data rank, tensor ranks within a node and no more than the model has
// heads, a layer for each stage; 1f1b, zb_h1, zb_v, or interleaved with 2 to 4 chunks, or the
// pinned schedule; where the encoder's place is open, inline, on one rank of its own, or in the
// bubbles with any division into copies, any divisor of the tensor ranks, and 1, 2 or 4 chunks;
// ZeRO 1 where nothing is pinned. gpipe and naive are taken only where they are pinned: 1f1b takes
// as long as gpipe and keeps less, naive is slower than either. Throws ConfigError where the pins
// leave none, with what to change.
std::vector<Plan> PlanShapes(const PlanRequest& request);

// Whether an encoder in that place has a head for each of so many tensor ranks of the language
// model: in the bubbles its own may be pinned.
bool MayShareEncoder(const PlanRequest& request, EncoderPlacement encoder, int tensor);

}  // namespace equipoise
