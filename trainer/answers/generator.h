#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec/model_config.h"
#include "models/stages/stage.h"

namespace equipoise {

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  double temperature = 0;  // 0 = greedy
  uint64_t seed = 0;       // of the sampling
};

// Continues a prompt token by token, keys and values of earlier tokens kept, where the weights are.
// The objects pointed to must outlive it. Not thread-safe.
class Generator {
 public:
  Generator(Stage* stage, const ModelConfig* config) : stage_(stage), config_(config) {}

  // The ids that follow `prompt`, up to and without the first of `stop_ids`.
  // `prompt`: ids with image context tokens; `pixel_values` [tiles, 3, size, size] fp32 or
  // undefined.
  std::vector<int32_t> Continue(const std::vector<int32_t>& prompt, const at::Tensor& pixel_values,
                                const std::vector<int32_t>& stop_ids,
                                const GenerateOptions& options);

 private:
  Stage* stage_;
  const ModelConfig* config_;
};

}  // namespace equipoise
