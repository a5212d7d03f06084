#pragma once

#include <cstdint>

#include "parallel/schedule/schedule.h"

namespace equipoise {

// PipeDream-2BW (arXiv 2006.09503): 1F1B that does not drain between two steps. While the last
// gradients of a step travel to the first stage, the later stages run passes of the next step, so
// that neither end of a step leaves a bubble. These run before the step's update, and the rest of
// their step after it: so all passes of a step are of the weights before the update before it, of
// which ranks keep a second copy ("double-buffered weights"), and
//
//   W(t + 1) = W(t) - step(gradients of batch t + 1 at W(t - 1))
//
// The paper updates each stage as soon as its own gradients are there. Here all wait for the norm
// of all gradients, by which they are clipped: the lists are cut there, once a step.

// How many passes of the next step each stage has run at the cut. With S stages in a row, stage s
// has as many micro-batches in flight as 1F1B has at most, S - s, and has done about s / 2
// backwards: a gradient of the step then is never waited for longer than by a forward.
PassesAhead PassesAheadOf(const StageGraph& graph, int micro_batches);

// The gradients of a stage that passes of the next step add to: backwards do to all of them, and
// forwards of the stage of the loss to those of the head, which makes its gradient with the loss.
enum class NextGradients : uint8_t { kNone, kOfHead, kAll };
NextGradients NextGradientsOf(const StageGraph& graph, const PassesAhead& ahead, int stage);

// The step's compute ops. `begun`: passes of this step have been run by the one before, as
// PassesAheadOf() says; `goes_on`: this one runs such of the next step, whose micro-batches have
// the numbers from `micro_batches` on. No stage has more micro-batches in flight than in 1F1B of as
// many steps in one.
// REQUIRES: as Build1F1B().
Schedule BuildPipeDream2Bw(const StageGraph& graph, int micro_batches, bool begun, bool goes_on);

}  // namespace equipoise
