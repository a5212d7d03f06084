#include "models/families/encoder_families.h"

#include <algorithm>

#include "models/families/internvl/internvl.h"
#include "models/families/llava/llava.h"
#include "models/families/qwen2_vl/qwen2_vl.h"

namespace equipoise {

const std::vector<const EncoderFamily*>& EncoderFamilies() {
  static const std::vector<const EncoderFamily*> kAll = {&InternVl(), &Llava(), &LlavaNext(),
                                                         &LlavaOnevision(), &Qwen2Vl()};
  return kAll;
}

const EncoderFamily* FindEncoderFamily(const std::string& model_type) {
  for (const EncoderFamily* family : EncoderFamilies()) {
    const std::vector<std::string>& types = family->model_types;
    if (std::find(types.begin(), types.end(), model_type) != types.end()) return family;
  }
  return nullptr;
}

}  // namespace equipoise
