#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec/model_config.h"
#include "models/stages/stage.h"

namespace equipoise {

// Options of autoregressive decoding.
struct GenerateOptions {
  int64_t max_new_tokens = 128;
  double temperature = 0;  // 0: greedy decoding
  uint64_t seed = 0;       // seed of the sampling
};

// Continues a prompt token by token with a KV cache, on the device of the weights. The objects
// pointed to must outlive it. Not thread-safe.
class Generator {
 public:
  Generator(Stage* stage, const ModelConfig* config) : stage_(stage), config_(config) {}

  // Returns the tokens generated after `prompt`, up to the first of `stop_ids`, which is excluded.
  // `prompt` has the image context tokens; `pixel_values` is [tiles, 3, size, size] fp32, or
  // undefined without pictures.
  std::vector<int32_t> Continue(const std::vector<int32_t>& prompt, const at::Tensor& pixel_values,
                                const std::vector<int32_t>& stop_ids,
                                const GenerateOptions& options);

 private:
  Stage* stage_;
  const ModelConfig* config_;
};

}  // namespace equipoise
