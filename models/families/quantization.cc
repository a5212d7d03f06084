#include "models/families/quantization.h"

#include <fmt/format.h>

#include <string>

#include "configs/base/json.h"

namespace equipoise {

QuantizeConfig ParseQuantization(const ConfigSection& top) {
  const char* key = "quantization_config";
  if (!top.Has(key)) return {};
  const char* read = "GPTQ folders of 4 bits alone are read; use one, or the original weights";
  const ConfigSection section = Subsection(top, key);
  const std::string method = GetString(section.json, "quant_method", section.where, "");
  if (method != "gptq") section.Refuse("quant_method", fmt::format("'{}': {}", method, read));
  const int64_t bits = GetInt(section.json, "bits", section.where);
  if (bits != 4) section.Refuse("bits", fmt::format("{}: {}", bits, read));
  const std::string format = GetString(section.json, "checkpoint_format", section.where, "gptq");
  if (format != "gptq" && format != "gptq_v2") {
    section.Refuse("checkpoint_format",
                   fmt::format("'{}' is not supported; use gptq or gptq_v2", format));
  }
  section.RequireFlag("lm_head", false);
  QuantizeConfig config;
  config.packing = Packing::kGptq;
  config.components = {"llm"};
  config.gptq.group_size = GetInt(section.json, "group_size", section.where, 128);
  if (config.gptq.group_size != -1)
    config.gptq.group_size = section.Size("group_size", kMaxWidth, 128);
  config.gptq.act_order = section.Flag("desc_act", false);
  config.gptq.zero_offset = format == "gptq" ? 1 : 0;
  return config;
}

}  // namespace equipoise
