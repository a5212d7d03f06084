#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/yaml/fields.h"

namespace equipoise {

// The `parallel` section of a configuration. Degrees that are absent are chosen by the planner.
struct ParallelSection {
  static constexpr const char* kScalarForm = "auto";
  bool automatic = true;  // `parallel: auto`: all keys have their defaults
  std::optional<int64_t> data, pipeline, tensor, chunks;
  std::string encoder = "inline";
  std::optional<int64_t> encoder_ranks, encoder_chunks, encoder_tensor;
  std::optional<std::string> schedule;
  std::vector<int64_t> stage_layers;
  std::optional<int64_t> zero, zero_ranks;
  bool prefetch = false, encoder_stream = false, encoder_static = false;
  std::optional<bool> sequence;
  std::optional<int64_t> context;
  int64_t bucket_bytes = 4 << 20;
  double timeout_s = 600;
  std::string nccl;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("data", data, "data-parallel ranks; absent = planned", Between(1, 1 << 20));
    visit("pipeline", pipeline, "pipeline ranks, which share out the layers; absent = planned",
          Between(1, 4096));
    visit("tensor", tensor, "ranks that share out each layer; absent = planned", Between(1, 4096));
    visit("context", context,
          "context parallelism: ranks that share out the tokens and pictures of each micro-batch, "
          "for rows that are too long for one; attention's heads are exchanged (Ulysses); absent = "
          "1, "
          "or as many as a plan needs to fit",
          Between(1, 4096));
    visit("encoder", encoder,
          "inline: vision and projector are the first of the layers that the pipeline ranks share; "
          "disaggregated: they have the first pipeline ranks to themselves; three_phase, dep, "
          "optimus_coarse, optimus: copies of them on all pipeline ranks run in the bubbles of the "
          "language model; auto: planned",
          OneOf({"inline", "disaggregated", "three_phase", "dep", "optimus_coarse", "optimus",
                 "auto"}));
    visit("encoder_ranks", encoder_ranks,
          "pipeline ranks of a disaggregated encoder, of those in `pipeline`, or of each copy in "
          "the bubbles; absent = planned (of a disaggregated one 1)",
          Between(1, 4095));
    visit("encoder_chunks", encoder_chunks,
          "stages of an encoder in the bubbles on each of its pipeline ranks: more fit smaller "
          "bubbles; absent = planned",
          Between(1, 64));
    visit(
        "encoder_tensor", encoder_tensor,
        "tensor ranks that share out each layer of a copy of an encoder in the bubbles, a divisor "
        "of `tensor`: with fewer, as many copies encode other micro-batches beside each other; "
        "absent = planned",
        Between(1, 4096));
    visit(
        "prefetch", prefetch,
        "a frozen encoder in the bubbles runs a step ahead: each step encodes the pictures of the "
        "next one too, in any bubble, and their features are kept, one step's at most; with "
        "`encoder: auto` where that is faster than an encoder that is inline");
    visit(
        "encoder_stream", encoder_stream,
        "on GPUs, an encoder in the bubbles computes on a CUDA stream of its own, beside what the "
        "language model's tensor ranks sum; worth most with `encoder_tensor: 1`");
    visit("encoder_static", encoder_static,
          "to compare with: an encoder in the bubbles is laid there as if every micro-batch were "
          "full, not anew by the patches of each step");
    visit("schedule", schedule,
          "order of the pipeline's passes: naive, gpipe, 1f1b, zb_h1, interleaved, zb_v, or a file "
          "that holds a schedule; absent = planned; pipedream_2bw, which is never planned, runs "
          "passes of two steps in turn, on gradients that are one update late");
    visit("chunks", chunks,
          "stages of each pipeline rank that is not the encoder's; absent = planned",
          Between(1, 64));
    visit("stage_layers", stage_layers,
          "layers of each stage, in order (vision, projector, LLM as one list); absent = "
          "balance.partition",
          Between(0, 1e6));
    visit(
        "zero", zero,
        "what data ranks share out: 0 nothing, 1 the optimizer's state, 2 gradients too, 3 weights "
        "too (FSDP); absent = planned, or 1",
        Between(0, 3));
    visit("zero_ranks", zero_ranks,
          "hierarchical ZeRO (hybrid sharding): of the ranks with the same weights so many "
          "neighbours, such as those of a node, share out one copy of what `zero` says, and other "
          "copies lie on the others; absent = planned, or all of them in one",
          Between(1, 1 << 20));
    visit("sequence", sequence,
          "sequence parallelism: tensor ranks share out the language model's tokens too, "
          "between linears and in what is kept for backward; needs parallel.tensor of 2 or more; "
          "absent = planned");
    visit("bucket_bytes", bucket_bytes,
          "gradients are reduced in buckets of this size: larger ones use the network better, "
          "smaller ones start earlier",
          Between(4, 1e11));
    visit("timeout_s", timeout_s, "seconds that a rank waits for another at most", Between(1, 1e7));
    visit(
        "nccl", nccl,
        "NCCL's library, such as libnccl.so.2 or a path, for communication between GPUs; absent = "
        "LibTorch's own");
  }
};

}  // namespace equipoise
