#include "models/families/llava/original_llava.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/error.h"

namespace equipoise {
namespace {

constexpr char kPublished[] =
    "take the same model's folder of llava-hf (llava-hf/llava-1.5-7b-hf, "
    "llava-hf/llava-v1.6-mistral-7b-hf, ...)";

std::string ClassOf(const ConfigSection& top) {
  const Json classes = top.json.value("architectures", Json());
  if (!classes.is_array() || classes.empty() || !classes[0].is_string()) return "";
  return classes[0].get<std::string>();
}

// The family of the language model. The class tells it; the same model_type stands for several.
std::string DecoderType(const ConfigSection& top) {
  const std::string name = ClassOf(top), type = GetString(top.json, "model_type", top.where);
  using Row = std::pair<const char*, const char*>;
  for (const auto& [of, family] :
       {Row("LlavaLlamaForCausalLM", "llama"), Row("LlavaMistralForCausalLM", "mistral"),
        Row("LlavaQwenForCausalLM", "qwen2")}) {
    if (name == of) return family;
  }
  for (const auto& [of, family] : {Row("llava", "llama"), Row("llava_llama", "llama"),
                                   Row("llava_mistral", "mistral"), Row("llava_qwen", "qwen2")}) {
    if (name.empty() && type == of) return family;
  }
  top.Refuse(
      name.empty() ? "model_type" : "architectures",
      fmt::format("'{}' is not supported in LLaVA's original form; use LlavaLlamaForCausalLM,"
                  " LlavaMistralForCausalLM or LlavaQwenForCausalLM",
                  name.empty() ? type : name));
}

// Refuses pictures of any resolution, which LLaVA-NeXT's and LLaVA-OneVision's folders have.
void RefuseResolutions(const ConfigSection& top) {
  const std::string merge = GetString(top.json, "mm_patch_merge_type", top.where, "flat");
  const std::string fit = GetString(top.json, "image_aspect_ratio", top.where, "square");
  if (merge == "flat" && (fit == "square" || fit == "pad")) return;
  throw DataError(fmt::format("{}: {}: {} in LLaVA's original form is not supported; {}", top.where,
                              merge == "flat" ? "image_aspect_ratio" : "mm_patch_merge_type",
                              merge == "flat" ? fit : merge, kPublished));
}

}  // namespace

bool IsOriginalLlava(const ConfigSection& top) {
  const std::string name = ClassOf(top);
  const bool own = name.starts_with("Llava") && name.ends_with("ForCausalLM");
  if (!own && !top.Has("mm_vision_tower")) return false;
  const std::string type = GetString(top.json, "model_type", top.where);
  return type.starts_with("llava") && !top.Has("vision_config");
}

OriginalLlava ParseOriginalLlava(const ConfigSection& top) {
  RefuseResolutions(top);
  top.RequireText("mm_vision_select_feature", "patch");
  top.RequireFlag("mm_use_im_start_end", false);
  top.RequireFlag("s2", false);
  const std::string kind = GetString(top.json, "mm_projector_type", top.where, "linear");
  if (kind != "mlp2x_gelu") {
    top.Refuse("mm_projector_type",
               fmt::format("'{}' is not supported, only 'mlp2x_gelu', LLaVA-1.5's, is", kind));
  }
  if (top.Has("mm_resampler_type")) top.Refuse("mm_resampler_type", "no resampler is supported");
  OriginalLlava llava;
  llava.encoder = GetString(top.json, "mm_vision_tower", top.where);
  llava.encoder_width = top.Has("mm_hidden_size") ? top.Size("mm_hidden_size", kMaxWidth) : 0;
  llava.feature_layer = GetInt(top.json, "mm_vision_select_layer", top.where);
  if (llava.feature_layer == 0) top.Refuse("mm_vision_select_layer", "0 is no layer's output");
  llava.pads = GetString(top.json, "image_aspect_ratio", top.where, "square") == "pad";
  llava.decoder = top.json;
  llava.decoder["model_type"] = DecoderType(top);
  for (const char* key : {"architectures", "mm_vision_tower"}) llava.decoder.erase(key);
  return llava;
}

void RefuseOriginalLlava(const ConfigSection& top) {
  if (!IsOriginalLlava(top)) return;
  RefuseResolutions(top);
  throw DataError(fmt::format(
      "{0}: is in LLaVA's original form, without its encoder's description, and {1} is no folder "
      "here or in the Hub's cache; `hf download {1}`, or give this folder as model.llm and that "
      "one "
      "as model.vision, or {2}",
      top.where, GetString(top.json, "mm_vision_tower", top.where, "its encoder"), kPublished));
}

std::vector<Renaming> OriginalProjectorNames(const std::vector<std::string>& prefixes) {
  std::vector<Renaming> renamings;
  for (const std::string& prefix : prefixes) {
    renamings.push_back({"multi_modal_projector.linear_1", prefix + "mm_projector.0", {}});
    renamings.push_back({"multi_modal_projector.linear_2", prefix + "mm_projector.2", {}});
  }
  return renamings;
}

std::vector<Renaming> OriginalLlavaNames(const std::string& prefix) {
  std::vector<Renaming> renamings = OriginalProjectorNames({prefix + "model."});
  for (const std::string part :
       {"embeddings", "pre_layrnorm", "encoder", "post_layernorm", "head"}) {
    renamings.push_back(
        {"vision_tower." + part, prefix + kOriginalTower + "vision_model." + part, {}});
  }
  return renamings;
}

}  // namespace equipoise
