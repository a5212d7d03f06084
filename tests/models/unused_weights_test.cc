#include "models/weights/unused_weights.h"

#include <ATen/ops/zeros.h>

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "models/families/families.h"
#include "models/weights/safetensors.h"
#include "tests/models/model_support.h"
#include "tests/trainer/scratch_folder.h"

namespace equipoise {
namespace {

TEST_CASE("weights that a model has no place for are named", "[models][cpu]") {
  const ScratchFolder folder;
  const std::string file = folder.Path("model.safetensors");
  ModelConfig config = testing::TinyInternVl(/*large_form=*/false);
  config.text.tie_word_embeddings = true;
  const at::Tensor any = at::zeros({1});
  std::map<std::string, LazyTensor> tensors;
  for (const LayerSpec& layer : LayerSpecs(config)) {
    for (const TensorSpec& tensor : layer.parameters) tensors.emplace(tensor.name, any);
  }
  for (const char* name : {"lm_head.weight", "text_model.embeddings.weight", "logit_scale",
                           "vision_tower.head.probe", "vision_tower.embeddings.position_ids",
                           "language_model.model.layers.0.self_attn.rotary_emb.inv_freq"}) {
    tensors.emplace(name, any);
  }
  WriteSafetensors(file, tensors);
  CHECK(UnusedWeights(config, folder.path()).empty());
  config.text.tie_word_embeddings = false;
  CHECK(UnusedWeights(config, folder.path()).empty());  // it is used
  config.text.num_hidden_layers -= 1;
  const auto unused = UnusedWeights(config, folder.path());
  CHECK(unused.size() == 12);
  CHECK(unused.front() == "language_model.model.layers.1.input_layernorm.weight");
  // The fused weights of OpenGVLab's code, and the folder of an encoder.
  WriteSafetensors(file, {{"encoder.layers.0.attn.qkv.weight", any},
                          {"encoder.layers.9.attn.qkv.weight", any},
                          {"classifier.weight", any}});
  CHECK(UnusedWeights(config, {folder.path(), "vision_model."}) ==
        std::vector<std::string>{"classifier.weight", "encoder.layers.9.attn.qkv.weight"});
}

TEST_CASE("weights in GPTQ's form may have biases beside them", "[models][cpu]") {
  const ScratchFolder folder;
  ModelConfig config = testing::TinyText("llama", /*tied=*/false);
  const at::Tensor any = at::zeros({1});
  const std::string layer = "model.layers.0.self_attn.q_proj.";
  std::map<std::string, LazyTensor> tensors;
  for (const char* last : {"qweight", "qzeros", "scales", "g_idx", "bias"})
    tensors.emplace(layer + last, any);
  WriteSafetensors(folder.Path("model.safetensors"), tensors);
  CHECK(UnusedWeights(config, folder.path()) == std::vector<std::string>{layer + "bias"});
  config.quantize = {Packing::kGptq, {"llm"}};
  CHECK(UnusedWeights(config, folder.path()).empty());
}

}  // namespace
}  // namespace equipoise
