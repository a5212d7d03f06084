#include "models/families/internlm2/internlm2.h"

#include "models/families/decoder_keys.h"

namespace equipoise {
namespace {

void Parse(const ConfigSection& section, TextConfig* text) {
  ParsePositions(section, 2048, text);
  ParseHeadDim(section, 0, text);
  ParseAttentionBias(section, "bias", true, text);
  section.RequireText("rope_pos_id_version", "default");
}

// InternLM2's code accepts "rope_scaling" with these two keys only.
void Write(const TextConfig& text, Json* json) {
  (*json)["bias"] = text.attention_bias;
  json->erase("rope_parameters");
  if (text.rope_type == "default") return;
  (*json)["rope_scaling"] = {{"type", text.rope_type}, {"factor", text.rope_factor}};
}

// The rows of wqkv are, for each key/value head, its query heads, then the key, then the value.
std::vector<Renaming> Renamings(const TextConfig& text) {
  const int64_t kv_heads = text.num_key_value_heads;
  const int64_t queries = text.num_attention_heads / kv_heads, group = queries + 2;
  const std::string layer = "model.layers.#.";
  const std::string wqkv = layer + "attention.wqkv";
  return {
      {"model.embed_tokens", "model.tok_embeddings", {}},
      {layer + "self_attn.q_proj", wqkv, {0, queries, group, kv_heads}},
      {layer + "self_attn.k_proj", wqkv, {queries, 1, group, kv_heads}},
      {layer + "self_attn.v_proj", wqkv, {queries + 1, 1, group, kv_heads}},
      {layer + "self_attn.o_proj", layer + "attention.wo", {}},
      {layer + "mlp.gate_proj", layer + "feed_forward.w1", {}},
      {layer + "mlp.up_proj", layer + "feed_forward.w3", {}},
      {layer + "mlp.down_proj", layer + "feed_forward.w2", {}},
      {layer + "input_layernorm", layer + "attention_norm", {}},
      {layer + "post_attention_layernorm", layer + "ffn_norm", {}},
      {"lm_head", "output", {}},
  };
}

}  // namespace

const DecoderFamily& InternLm2() {
  static const DecoderFamily kFamily = {"internlm2",
                                        "InternLM2ForCausalLM",
                                        Parse,
                                        Write,
                                        Renamings,
                                        WeightNaming::kOriginal,
                                        {/*types=*/{"default", "linear", "dynamic"}}};
  return kFamily;
}

}  // namespace equipoise
