#include "models/families/llava/original_llava.h"

#include <algorithm>
#include <string>
#include <vector>

#include "configs/base/error.h"

namespace equipoise {

std::vector<Renaming> OriginalProjectorNames(const std::vector<std::string>& prefixes) {
  std::vector<Renaming> renamings;
  for (const std::string& prefix : prefixes) {
    renamings.push_back({"multi_modal_projector.linear_1", prefix + "mm_projector.0", {}});
    renamings.push_back({"multi_modal_projector.linear_2", prefix + "mm_projector.2", {}});
  }
  return renamings;
}

void RefuseOriginalLlava(const ConfigSection& top) {
  const auto is_original = [](const Json& name) {
    if (!name.is_string()) return false;
    const std::string& text = name.get_ref<const std::string&>();
    return text.starts_with("Llava") && text.ends_with("ForCausalLM");
  };
  const Json classes = top.json.value("architectures", Json());
  const bool original =
      classes.is_array() && std::any_of(classes.begin(), classes.end(), is_original);
  if (!original && !top.Has("mm_vision_tower")) return;
  const std::string type = GetString(top.json, "model_type", top.where);
  if (!type.starts_with("llava") || top.Has("vision_config")) return;
  throw DataError(
      top.where +
      ": is in LLaVA's original form, which is not read; take the same model's folder of llava-hf "
      "(llava-hf/llava-1.5-7b-hf, llava-hf/llava-v1.6-mistral-7b-hf, ...)");
}

}  // namespace equipoise
