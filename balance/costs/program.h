#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "models/spec/layer_cost.h"

namespace equipoise {

// Bytes that the kernels of a pass move for each of its elements, in 16-bit precision, and how many
// kernels there are.
struct PassCost {
  double forward_bytes = 0, backward_bytes = 0;
  int forward_kernels = 1, backward_kernels = 1;
};

// What a program's kernels move, apart from the device that runs them. The one place of these
// counts: replace them where recorded ones differ.
struct Program {
  const char* name = "";
  std::array<PassCost, kNumPassKinds> passes = {};
  // Moved for each weight and micro-batch when its gradient is made and added in fp32, beside the
  // product's own traffic.
  double gradient_bytes = 0;
  // Moved for each trained parameter by the gradient norm and AdamW in fp32; and beside that in
  // 16-bit precision, between masters and the weights that are computed with.
  double optimizer_bytes = 0, master_bytes_moved = 0;
  // The same where bf16 weights have no masters; negative, as fewer bytes are moved then.
  double weight_bytes_moved = 0;
  // Kept for each trained parameter in bf16, beside the weight that is computed with.
  int master_bytes = 0;
  // Moved on a GPU, in each pass, to unpack an element of a frozen weight held in fewer bits.
  double int8_bytes = 0, nf4_bytes = 0, gptq_bytes = 0;
  // Whether moments of 16 bits are widened before the update and rounded after it, in passes of
  // their own.
  bool widens_moments = false;
  // Whether the head's loss holds two fp32 copies of a chunk's logits, on a GPU.
  bool copies_logits = false;
  // Whether a layer's gradient is in fp32 before ZeRO 2 or 3 sums it to shards; else in the compute
  // dtype, as FSDP has it.
  bool fp32_whole_gradients = true;
  // Whether tensor ranks that share out rows do so in all layers: the runtime in the language model
  // alone (models/spec/layer_spec.h, ActivationSpec::shared).
  bool shares_all_rows = false;
  // Context ranks exchange heads for attention (Ulysses); else keys and values go round in a ring.
  bool exchanges_heads = false;
  // Whether tensor ranks send a part of a stage's output each, and gather it on the other side.
  bool scatters_boundaries = false;
  // Whether results of norms and activation functions may be computed again alone.
  bool recomputes_elementwise = true;
  // Whether a rank computes on only when what it sends has arrived.
  bool blocking_transfers = false;
  // Between a transfer's arrival and the first kernel of the pass that waits for it on the host.
  double host_wait_s = 0;

  const PassCost& Of(PassKind kind) const { return passes[static_cast<size_t>(kind)]; }
};

// This program on GPUs, as plans are priced: with its own kernels (train.kernels: auto), or with
// LibTorch's alone.
const Program& ThisProgram(bool own_kernels = true);
// The trainers whose steps were published (Megatron-LM, FSDP, NeMo), for comparisons only.
const Program& PublishedSystems();

// How attention treats its scores: in registers (FlashAttention 2; its first version; its
// third, or cuDNN's, on Hopper), or by products that write them to memory.
enum class AttentionKernel : uint8_t { kFlash, kFlash1, kFlash3, kScores };

// What every layer computes again in backward whatever the plan recomputes: nothing; the core of
// attention (Korthikanti et al., arXiv 2205.05198, section 5); every second product and all passes
// between them ("selective op" of torchtitan).
enum class Selective : uint8_t { kNone, kCore, kOperators };

// How a run is executed beside its plan. The runtime has the defaults, and what the plan and
// `train` say, alone; the others are priced for comparisons with other programs.
struct RunStyle {
  const Program* program = &ThisProgram();
  AttentionKernel attention = AttentionKernel::kFlash;
  bool cudnn_tiles = false;  // cuDNN's kernels within pictures of one size, `attention` elsewhere
  Selective selective = Selective::kNone;
  bool fp8 = false;                   // products of blocks in fp8, but for weights' gradients
  double moment_bytes = 4;            // of each of AdamW's two, for a parameter; below 2: codes
  bool offloads_activations = false;  // on GPUs: those of blocks may lie in host memory
  bool whole_masters = false;    // beside 16-bit weights fp32 ones, of which nothing is left out
  bool without_masters = false;  // of bf16 weights, which are rounded stochastically then
  double outer_bytes = 0;        // of an outer optimizer (DiLoCo), in host memory, for a parameter
  bool sequence_parallel = false;  // tensor ranks share out the rows between split products
  int context = 1;                 // ranks that share out each sequence
  bool overlaps_sums = false;      // sums of tensor ranks run beside the products
  // Transfers between stages run beside passes, also where the program's own hold up a rank.
  bool overlaps_transfers = false;
  // On GPUs sums of data ranks run beside the last backward, gathers of the updated weights beside
  // the next forward.
  bool overlaps_reduction = true, overlaps_gather = true;
};

// Bytes of AdamW's state for a trained parameter: moments, and what there is of a master.
double OptimizerStateBytes(const RunStyle& style, int64_t element_bytes);
// Bytes of it in host memory, where it is offloaded: with the values that a device computes with.
double OffloadedStateBytes(const RunStyle& style, int64_t element_bytes);
// Bytes that an update moves in host memory then, for each trained parameter: by the processors,
// and by copies from and to the device. Those of a copy are those of its link.
struct OffloadedMoves {
  double processors = 0, from_device = 0, to_device = 0;
};
OffloadedMoves OffloadedBytesMoved(const RunStyle& style, int64_t element_bytes);
// Bytes that the gradient norm and an update move for each trained parameter.
double OptimizerMovedBytes(const RunStyle& style, int64_t element_bytes);

}  // namespace equipoise
