#include "models/families/phi3/phi3.h"

#include "models/families/decoder_keys.h"

namespace equipoise {
namespace {

// That of Phi-3-mini-4k and -128k, where config.json does not say it.
constexpr int64_t kPositions = 4096;

// As in Transformers: an absent key stands for a token, while null is none.
void SetAbsentId(const ConfigSection& section, const char* key, int64_t fallback, int64_t* id) {
  if (!section.json.contains(key)) *id = fallback;
}

void Parse(const ConfigSection& section, TextConfig* text) {
  ParsePositions(section, kPositions, text);
  ParseHeadDim(section, 0, text);
  ParseWindow(section, 0, text);
  text->rms_norm_eps = section.Positive("rms_norm_eps", 1e-5);
  SetAbsentId(section, "bos_token_id", 1, &text->bos_token_id);
  SetAbsentId(section, "eos_token_id", 32000, &text->eos_token_id);
  SetAbsentId(section, "pad_token_id", 32000, &text->pad_token_id);
  section.RequireNoDropout("resid_pdrop");
  section.RequireNoDropout("embd_pdrop");
}

void Write(const TextConfig& text, Json* json) {
  (*json)["head_dim"] = text.head_dim;
  if (text.partial_rotary_factor != 1) {
    (*json)["partial_rotary_factor"] = text.partial_rotary_factor;
  }
  if (text.rope_type != "longrope") return;
  (*json)["original_max_position_embeddings"] = text.rope_original_max_position_embeddings;
  // Transformers 4 takes the type and the lists alone, and a folder that says more is not of it.
  Json& older = (*json)["rope_scaling"];
  older["type"] = text.rope_type;
  for (const char* key :
       {"rope_type", "rope_theta", "original_max_position_embeddings", "partial_rotary_factor"}) {
    older.erase(key);
  }
}

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
  static const DecoderFamily kFamily = {"phi3",
                                        "Phi3ForCausalLM",
                                        Parse,
                                        Write,
                                        Renamings,
                                        WeightNaming::kTransformers,
                                        {/*types=*/{"default", "longrope"},
                                         /*names_of_longrope=*/{"su", "yarn"},
                                         /*original_positions=*/kPositions,
                                         /*takes_part=*/true}};
  return kFamily;
}

}  // namespace equipoise
