#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "models/spec/image_spec.h"
#include "models/spec/layer_load.h"
#include "parallel/comm/communicator.h"
#include "trainer/run/parallel_model.h"

namespace equipoise {

// Options of autoregressive decoding.
struct GenerateOptions {
  int64_t max_new_tokens = 128;
  double temperature = 0;  // 0: greedy decoding
  // Nucleus sampling (arXiv 1904.09751): of the most likely tokens, the fewest whose probabilities
  // sum up to this.
  double top_p = 1;
  uint64_t seed = 0;  // of the sampling
  // Transformers' repetition_penalty (arXiv 1909.05858): logits of the tokens of prompt and answer
  // are divided by it where they are above 0, else multiplied. 1: none.
  double repetition_penalty = 1;

  // Whether the head's largest logit is the next token.
  bool plain_greedy() const { return temperature <= 0 && repetition_penalty == 1; }
};

// When answers are given up. Ranks of `world` ask together, before the first token and after every
// kPassesBetween.
struct GiveUp {
  static constexpr int kPassesBetween = 16;
  Communicator* world = nullptr;
  std::function<bool()> agree;  // the same value on each rank, maybe collective; empty: never
};

// A conversation up to where the answer begins.
struct Prompt {
  std::vector<int32_t> ids;  // with the image context tokens
  PictureLoad pictures;      // of all of them
  // As in MicroBatch; undefined without pictures. Only ranks with the encoder's first layer read it
  // (ModelPart::needs_pictures()).
  at::Tensor pixel_values;
  // The pictures' grids and first tokens, for a model that takes grids of patches.
  std::vector<PatchGrid> grids;
  std::vector<int64_t> begins;
  // Its random numbers are a function of (seed, number, place in the answer).
  uint64_t number = 0;
};

// The next token by its logits [vocabulary] fp32 on the CPU, at `place` of the answer to prompt
// `number`. REQUIRES: a temperature above 0.
int32_t SampleToken(const at::Tensor& logits, const GenerateOptions& options, uint64_t number,
                    uint64_t place);

// Continues prompts token by token on the model where it lies: its tensor ranks each hold their
// heads of the KV cache, its pipeline ranks pass on hidden states, and the last of them tells the
// others each token. Not thread-safe.
class Generator {
 public:
  // `model` must outlive it.
  explicit Generator(ParallelModel& model) : model_(model) {}

  // The tokens generated after each prompt of each batch, up to the first of `stop_ids`, which is
  // excluded. A batch is a micro-batch: its prompts are computed side by side, in one row without
  // padding, and leave it as they end; several batches fill a pipeline. The same on every rank of
  // the replica, which all call it with the same prompts (pixels apart). Collective over the data
  // ranks too where these share the weights out (ZeRO 3), and over the world of `give_up`, which
  // has all ranks of a replica; each has prompts of its own, or none. Answers that are given up end
  // where they are.
  std::vector<std::vector<std::vector<int32_t>>> Continue(
      const std::vector<std::vector<Prompt>>& batches, const std::vector<int32_t>& stop_ids,
      const GenerateOptions& options, const GiveUp& give_up = {});

 private:
  ParallelModel& model_;
};

}  // namespace equipoise
