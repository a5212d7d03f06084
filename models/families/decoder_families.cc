#include "models/families/decoder_families.h"

#include "models/families/internlm2/internlm2.h"
#include "models/families/llama/llama.h"
#include "models/families/mistral/mistral.h"
#include "models/families/phi3/phi3.h"
#include "models/families/qwen2/qwen2.h"
#include "models/families/qwen3/qwen3.h"

namespace equipoise {

const std::vector<const DecoderFamily*>& DecoderFamilies() {
  static const std::vector<const DecoderFamily*> kAll = {&Qwen2(),     &Qwen3(),   &Llama(),
                                                         &InternLm2(), &Mistral(), &Phi3()};
  return kAll;
}

const DecoderFamily* FindDecoderFamily(const std::string& model_type) {
  for (const DecoderFamily* family : DecoderFamilies()) {
    if (family->model_type == model_type) return family;
  }
  return nullptr;
}

std::vector<std::string> DecoderModelTypes() {
  std::vector<std::string> types;
  for (const DecoderFamily* family : DecoderFamilies()) types.push_back(family->model_type);
  return types;
}

}  // namespace equipoise
