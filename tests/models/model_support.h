#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/layers/micro_batch.h"
#include "models/spec/model_config.h"
#include "models/spec/tensor_parallel.h"
#include "models/stages/stage.h"
#include "parallel/parameter.h"

namespace equipoise::testing {

// Normal numbers that depend on the seed alone.
at::Tensor Normal(const std::vector<int64_t>& shape, uint64_t seed, double scale = 1.0);

// Tiny architectures: `family` is qwen2, qwen3, llama or internlm2.
ModelConfig TinyText(const std::string& family, bool tied);
// InternViT (300M form, or 6B with RMSNorm and QK normalisation) in front of Qwen2 or LLaMA.
ModelConfig TinyInternVl(bool large_form);
// LLaVA-1.5's form: CLIP, of whose three blocks two are computed, and LLaMA.
ModelConfig TinyLlava();
// LLaVA-NeXT's: the same with pictures of any resolution, a patch a tile.
ModelConfig TinyLlavaNext();

// LLaVA-OneVision's: SigLIP before Qwen2, four patches a tile, those of a tall picture brought
// down.
ModelConfig TinyLlavaOnevision();
// Qwen2.5-VL's form: RMSNorm, SwiGLU, windows of two by two tokens in the first block; else
// Qwen2-VL's, whose head is tied.
ModelConfig TinyQwenVl(bool windows);
// Qwen3-VL's form: positions interpolated from 5 by 5, two features, one of the last block's
// output.
ModelConfig TinyQwen3Vl();

// One stage and its memory.
struct TestModel {
  std::unique_ptr<Stage> stage;
  std::unique_ptr<FlatParameters> flat;
  // Gradients by name; undefined where frozen.
  std::map<std::string, at::Tensor> gradients() const;
};
// `layers` = {first, last) when not all are wanted. Every parameter's weights depend on its name;
// a tensor-parallel rank has its part of the same whole ones.
TestModel MakeModel(const ModelConfig& config, at::ScalarType dtype = at::kFloat,
                    const std::vector<std::string>& freeze = {},
                    const std::vector<int64_t>& layers = {}, const TensorParallel& tensor = {});

// A row of segments of these lengths; the first tokens of the row hold the placeholders of `tiles`
// tiles, which all lie in the first segment. Placeholders are no targets. For a model that takes
// grids of patches, of so many pictures of one to four tokens; for one that takes pictures of any
// resolution of so many of three tokens and more.
MicroBatch RandomBatch(const ModelConfig& config, const std::vector<int64_t>& lengths,
                       int64_t tiles, uint64_t seed);

// A rank's part of a whole tensor, as the parameter says; a view.
at::Tensor PartOf(const at::Tensor& whole, const Parameter& parameter);

// |a - b| / max(|b|, floor), over the whole tensor.
double RelativeError(const at::Tensor& a, const at::Tensor& b, double floor = 1e-12);

}  // namespace equipoise::testing
