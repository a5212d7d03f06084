#include "models/families/phi3/phi3.h"

#include <fmt/format.h>

#include "models/families/decoder_keys.h"

namespace equipoise {
namespace {

// Phi-4-mini turns three quarters of each head.
void RequireWholeHeads(const ConfigSection& section) {
  constexpr char kPart[] = "partial_rotary_factor";
  const double part = GetNumber(section.json, kPart, section.where, 1.0);
  if (part != 1) section.Refuse(kPart, fmt::format("{} is not supported, only 1 is", part));
}

// As in Transformers: an absent key stands for a token, while null is none.
void SetAbsentId(const ConfigSection& section, const char* key, int64_t fallback, int64_t* id) {
  if (!section.json.contains(key)) *id = fallback;
}

void Parse(const ConfigSection& section, TextConfig* text) {
  ParsePositions(section, 4096, text);
  ParseHeadDim(section, 0, text);
  ParseWindow(section, 0, *text);
  text->rms_norm_eps = section.Positive("rms_norm_eps", 1e-5);
  SetAbsentId(section, "bos_token_id", 1, &text->bos_token_id);
  SetAbsentId(section, "eos_token_id", 32000, &text->eos_token_id);
  SetAbsentId(section, "pad_token_id", 32000, &text->pad_token_id);
  section.RequireNoDropout("resid_pdrop");
  section.RequireNoDropout("embd_pdrop");
  RequireWholeHeads(section);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (section.Has(key)) RequireWholeHeads(Subsection(section, key));
  }
  if (text->rope_type != "default") {
    section.Refuse("rope_scaling",
                   fmt::format("'{}' is not supported, only 'default' is", text->rope_type));
  }
}

void Write(const TextConfig& text, Json* json) { (*json)["head_dim"] = text.head_dim; }

std::vector<Renaming> Renamings(const TextConfig& text) {
  const int64_t heads = text.num_attention_heads, kv_heads = text.num_key_value_heads;
  const int64_t all = heads + 2 * kv_heads;
  const std::string attention = "model.layers.#.self_attn.", mlp = "model.layers.#.mlp.";
  return {
      {attention + "q_proj", attention + "qkv_proj", {0, heads, all, 1}},
      {attention + "k_proj", attention + "qkv_proj", {heads, kv_heads, all, 1}},
      {attention + "v_proj", attention + "qkv_proj", {heads + kv_heads, kv_heads, all, 1}},
      {mlp + "gate_proj", mlp + "gate_up_proj", {0, 1, 2, 1}},
      {mlp + "up_proj", mlp + "gate_up_proj", {1, 1, 2, 1}},
  };
}

}  // namespace

const DecoderFamily& Phi3() {
  static const DecoderFamily kFamily = {"phi3", "Phi3ForCausalLM", Parse,
                                        Write,  Renamings,         WeightNaming::kOriginal};
  return kFamily;
}

}  // namespace equipoise
