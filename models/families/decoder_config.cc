#include "models/families/decoder_config.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "configs/base/error.h"
#include "models/families/decoder_families.h"
#include "models/families/decoder_keys.h"
#include "models/families/rope_config.h"

namespace equipoise {
namespace {

// `windows`: the family has read which layers have one.
void RequireFullAttention(const ConfigSection& section, bool windows) {
  if (!section.Has("layer_types")) return;
  for (const Json& type : section.json["layer_types"]) {
    if (type != Json("full_attention") && !(windows && type == Json(kSlidingAttention))) {
      section.Refuse("layer_types", "only 'full_attention' is supported");
    }
  }
}

void SetTokenId(Json* json, const char* key, int64_t id) {
  // A list of the source (several end tokens) that begins with `id` is kept.
  const bool same = json->contains(key) && (*json)[key].is_array() && !(*json)[key].empty() &&
                    (*json)[key][0] == Json(id);
  if (!same) (*json)[key] = id < 0 ? Json(nullptr) : Json(id);
}

// The sizes of Transformers' LlamaConfig and so on, where they are not what ParseDecoder() takes.
Json DefaultSizes(const std::string& type) {
  Json sizes = {{"hidden_size", 4096}, {"num_hidden_layers", 32}, {"num_attention_heads", 32}};
  if (type == "llama" || type == "mistral") {
    sizes.update({{"intermediate_size", type == "llama" ? 11008 : 14336},
                  {"vocab_size", 32000},
                  {"bos_token_id", 1},
                  {"eos_token_id", 2}});
  } else if (type == "qwen2" || type == "qwen3") {
    sizes.update({{"intermediate_size", 22016}, {"vocab_size", 151936}});
    sizes["num_key_value_heads"] = 32;
  } else if (type == "phi3") {
    sizes.update({{"hidden_size", 3072}, {"intermediate_size", 8192}, {"vocab_size", 32064}});
  } else {
    return Json::object();
  }
  return sizes;
}

}  // namespace

TextConfig ParseNestedDecoder(const ConfigSection& section, const char* type) {
  const std::string own = GetString(section.json, "model_type", section.where, type);
  Json json = DefaultSizes(own);
  json.update(section.json);
  json["model_type"] = own;
  return ParseDecoder({json, section.where});
}

TextConfig ParseDecoder(const ConfigSection& section) {
  TextConfig text;
  text.model_type = GetString(section.json, "model_type", section.where);
  const DecoderFamily* family = FindDecoderFamily(text.model_type);
  if (family == nullptr) {
    section.Refuse("model_type", fmt::format("'{}' is not supported; use {}", text.model_type,
                                             ChoicesText(DecoderModelTypes())));
  }
  text.hidden_size = section.Size("hidden_size", kMaxWidth);
  text.intermediate_size = section.Size("intermediate_size", kMaxWidth);
  text.num_hidden_layers = section.Size("num_hidden_layers", kMaxLayers);
  text.num_attention_heads = section.Size("num_attention_heads", kMaxWidth);
  text.num_key_value_heads =
      section.Size("num_key_value_heads", kMaxWidth, text.num_attention_heads);
  text.vocab_size = section.Size("vocab_size", kMaxVocabulary);
  text.rms_norm_eps = section.Positive("rms_norm_eps", 1e-6);
  text.tie_word_embeddings = section.Flag("tie_word_embeddings", false);
  text.initializer_range = section.InitialScale("initializer_range", 0.02);
  text.bos_token_id = section.TokenId("bos_token_id");
  text.eos_token_id = section.TokenId("eos_token_id");
  text.pad_token_id = section.TokenId("pad_token_id");
  section.RequireText("hidden_act", "silu");
  section.RequireNoDropout("attention_dropout");
  if (!family->takes_layer_windows) section.RequireFlag("use_sliding_window", false);
  RequireFullAttention(section, section.Flag("use_sliding_window", false));
  family->parse(section, &text);
  ParseRope(section, family->rope, &text);
  return text;
}

void WriteDecoder(const TextConfig& text, Json* json) {
  json->update({{"model_type", text.model_type},
                {"hidden_size", text.hidden_size},
                {"intermediate_size", text.intermediate_size},
                {"num_hidden_layers", text.num_hidden_layers},
                {"num_attention_heads", text.num_attention_heads},
                {"num_key_value_heads", text.num_key_value_heads},
                {"vocab_size", text.vocab_size},
                {"max_position_embeddings", text.max_position_embeddings},
                {"rms_norm_eps", text.rms_norm_eps},
                {"tie_word_embeddings", text.tie_word_embeddings},
                {"initializer_range", text.initializer_range},
                {"hidden_act", "silu"}});
  WriteRope(text, json);
  FindDecoderFamily(text.model_type)->write(text, json);
  SetTokenId(json, "bos_token_id", text.bos_token_id);
  SetTokenId(json, "eos_token_id", text.eos_token_id);
  SetTokenId(json, "pad_token_id", text.pad_token_id);
}

void ValidateDecoder(const TextConfig& text, const std::string& where) {
  const auto refuse = [&](const std::string& what) { throw DataError(where + ": " + what); };
  if (text.num_attention_heads % text.num_key_value_heads != 0) {
    refuse(fmt::format("num_key_value_heads: {} do not divide num_attention_heads = {}",
                       text.num_key_value_heads, text.num_attention_heads));
  }
  if (text.head_dim % 2 != 0) refuse("head_dim: must be even, for rotary positions");
  if (text.rope_type == "dynamic" && text.head_dim <= 2) {
    refuse("head_dim: must be above 2 for rope_type 'dynamic'");
  }
  // As in Transformers: the embedding's row of this token is set to zero.
  if (text.pad_token_id < -1 || text.pad_token_id >= text.vocab_size) {
    refuse(fmt::format("pad_token_id: {} is outside the vocabulary of {}", text.pad_token_id,
                       text.vocab_size));
  }
  const int64_t width = text.head_dim * text.num_attention_heads;
  if (width > kMaxWidth) refuse("head_dim: times num_attention_heads is too large");
}

}  // namespace equipoise
