#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace equipoise {

// The kinds of op. B = I + W: zero-bubble schedules split the backward (arXiv 2401.10241).
enum class OpKind : uint8_t {
  kForward,          // F
  kBackward,         // B: input gradient and weight gradient
  kInputGradient,    // I
  kWeightGradient,   // W
  kEncoderForward,   // V: the forward of a stage that is an encoder of its own
  kEncoderBackward,  // U
  kSend,             // S
  kRecv,             // R
  kReduce,           // REDUCE: the stage's gradients are complete; sums them over data ranks
  kOptimizer,        // OPT: waits for all reductions, then updates the rank's weights
  kGather,           // GATHER: makes the stage's weights whole for a pass, layer by layer (ZeRO 3)
  kFree,             // FREE: ends the pass for data ranks that share out weights or gradients
};

// One entry of a rank's list. Its text, as in the literature:
//   2F0       forward of micro-batch 0 on stage 2; B, I, W, V and U likewise
//   2S0>3     stage 2 sends to stage 3, for micro-batch 0: its output where 3 comes after 2, the
//             gradient of its input where 3 comes before 2
//   3R0<2     stage 3 receives it
//   2REDUCE, OPT
//   2B0GATHER, 2B0FREE: before and after 2B0, also where a data rank has nothing to do in 2B0
struct Op {
  OpKind kind = OpKind::kForward;
  int stage = 0;        // that runs it; 0 for OPT
  int micro_batch = 0;  // 0 for REDUCE and OPT
  int peer = -1;        // of S and R: the stage at the other end; else -1
  // S and R: starts together with the entry before it (one group call in NCCL; in MPI the receives
  // are posted first). Written as a pair of parentheses around the group.
  bool joined = false;
  OpKind pass = OpKind::kForward;  // of GATHER and FREE: what the pass is

  auto operator<=>(const Op&) const = default;
};

// F, B, I, W, V, U.
constexpr bool IsCompute(OpKind kind) { return kind <= OpKind::kEncoderBackward; }
constexpr bool IsTransfer(OpKind kind) { return kind == OpKind::kSend || kind == OpKind::kRecv; }
// F or V; B, I or U (the kinds that make an input gradient).
constexpr bool IsForward(OpKind kind) {
  return kind == OpKind::kForward || kind == OpKind::kEncoderForward;
}
constexpr bool MakesInputGradient(OpKind kind) {
  return kind == OpKind::kBackward || kind == OpKind::kInputGradient ||
         kind == OpKind::kEncoderBackward;
}
// B, W or U.
constexpr bool MakesWeightGradient(OpKind kind) {
  return kind == OpKind::kBackward || kind == OpKind::kWeightGradient ||
         kind == OpKind::kEncoderBackward;
}

// The op's text, such as "2F0"; `joined` is not shown.
std::string ToString(const Op& op);

}  // namespace equipoise
