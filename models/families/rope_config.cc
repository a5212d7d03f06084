#include "models/families/rope_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace equipoise {
namespace {

constexpr char kOriginal[] = "original_max_position_embeddings";
constexpr char kPart[] = "partial_rotary_factor";

// The key of config.json with the numbers of the scaling: as in Transformers the older one, which
// users add to a folder by hand, where it says anything.
const char* RopeKey(const Json& json) {
  const auto older = json.find("rope_scaling");
  const bool given = older != json.end() && !older->is_null() && *older != Json::object();
  return given || !json.contains("rope_parameters") || json["rope_parameters"].is_null()
             ? "rope_scaling"
             : "rope_parameters";
}

bool Has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

void ParseType(const ConfigSection& rope, const RopeRules& rules, TextConfig* text) {
  const std::string older = GetString(rope.json, "type", rope.where, "default");
  std::string type = GetString(rope.json, "rope_type", rope.where, older);
  if (Has(rules.names_of_longrope, type)) type = "longrope";
  if (!Has(rules.types, type)) {
    std::string known;
    for (const std::string& each : rules.types) {
      known += fmt::format("{}'{}'", known.empty() ? "" : ", ", each);
    }
    rope.Refuse("rope_type", fmt::format("'{}' is not supported, only {} are", type, known));
  }
  text->rope_type = type;
}

// Transformers reads it beside the other keys too. With "default" only families whose code takes a
// part of a head look at it.
void ParsePart(const ConfigSection& section, const ConfigSection& rope, const RopeRules& rules,
               TextConfig* text) {
  const double beside = GetNumber(section.json, kPart, section.where, 1.0);
  const double part = GetNumber(rope.json, kPart, rope.where, beside);
  if (part == 1 || (!rules.takes_part && text->rope_type == "default")) return;
  if (!rules.takes_part) rope.Refuse(kPart, fmt::format("{} is not supported, only 1 is", part));
  if (!(part > 0 && part <= 1)) rope.Refuse(kPart, "must be above 0 and at most 1");
  text->partial_rotary_factor = part;
  if (text->rotary_dim() < 2 || text->rotary_dim() % 2 != 0) {
    rope.Refuse(kPart,
                fmt::format("{} of a head's {} elements is no even number", part, text->head_dim));
  }
}

void ParseFactor(const ConfigSection& rope, TextConfig* text) {
  if (!rope.Has("factor")) rope.Refuse("factor", "missing");
  text->rope_factor = rope.Positive("factor", 1);
  if (text->rope_factor < 1) rope.Refuse("factor", "must be at least 1");
}

void ParseLlama3(const ConfigSection& rope, TextConfig* text) {
  for (const char* needed : {"factor", "low_freq_factor", "high_freq_factor"}) {
    if (!rope.Has(needed)) rope.Refuse(needed, "missing");
  }
  text->rope_factor = rope.Positive("factor", 1);
  text->rope_low_freq_factor = rope.Positive("low_freq_factor", 1);
  text->rope_high_freq_factor = rope.Positive("high_freq_factor", 1);
  text->rope_original_max_position_embeddings = rope.Size(kOriginal, kMaxPositions);
  if (text->rope_low_freq_factor >= text->rope_high_freq_factor) {
    rope.Refuse("low_freq_factor", "must be below high_freq_factor");
  }
}

// Transformers takes the one beside the other sizes where both are there.
void ParseOriginal(const ConfigSection& section, const ConfigSection& rope, const RopeRules& rules,
                   TextConfig* text) {
  const bool beside = rules.original_positions > 0 || section.Has(kOriginal);
  const int64_t inside = rope.Size(kOriginal, kMaxPositions, text->max_position_embeddings);
  int64_t& original = text->rope_original_max_position_embeddings;
  original = beside ? section.Size(kOriginal, kMaxPositions, rules.original_positions) : inside;
  if (beside && rope.Has(kOriginal) && inside != original) {
    rope.Refuse(kOriginal, fmt::format("is {}, but {} beside the other sizes, where Transformers "
                                       "reads it; make the two equal",
                                       inside, original));
  }
}

// The factor of a scaling that may leave it to the numbers of positions.
void ParseStretch(const ConfigSection& rope, TextConfig* text) {
  if (rope.Has("factor")) return ParseFactor(rope, text);
  text->rope_factor = static_cast<double>(text->max_position_embeddings) /
                      static_cast<double>(text->rope_original_max_position_embeddings);
}

// What YaRN multiplies cosines and sines by (arXiv 2309.00071, section 3.4), with DeepSeek's
// weight.
double YarnScale(double factor, double weight) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}

void ParseYarn(const ConfigSection& rope, TextConfig* text) {
  if (!rope.json.contains("factor")) rope.Refuse("factor", "missing");
  ParseStretch(rope, text);
  if (text->rope_theta <= 1) rope.Refuse("rope_theta", "must be above 1 for 'yarn'");
  const auto beta = [&](const char* key, double fallback) {  // 0 stands for the default
    return GetNumber(rope.json, key, rope.where, 0.0) == 0 ? fallback : rope.Positive(key, 1);
  };
  text->rope_beta_fast = beta("beta_fast", 32);
  text->rope_beta_slow = beta("beta_slow", 1);
  if (text->rope_beta_fast < text->rope_beta_slow) {
    rope.Refuse("beta_fast", "must be at least beta_slow");
  }
  text->rope_truncate = rope.Flag("truncate", true);
  const double mscale = GetNumber(rope.json, "mscale", rope.where, 0.0);
  const double all = GetNumber(rope.json, "mscale_all_dim", rope.where, 0.0);
  const double factor = text->rope_factor;
  double scale = YarnScale(factor, 1);
  if (mscale != 0 && all != 0) scale = YarnScale(factor, mscale) / YarnScale(factor, all);
  text->rope_attention_factor = rope.Positive("attention_factor", scale);
}

std::vector<double> ParseFactors(const ConfigSection& rope, const char* key, int64_t size) {
  if (!rope.Has(key)) rope.Refuse(key, "missing");
  const Json& list = rope.json[key];
  if (!list.is_array() || static_cast<int64_t>(list.size()) != size) {
    rope.Refuse(key, fmt::format("must be a list of {} numbers, one for each pair of a head's "
                                 "elements that turns",
                                 size));
  }
  std::vector<double> factors;
  for (const Json& value : list) {
    const Json one = {{key, value}};
    factors.push_back(ConfigSection{one, rope.where}.Positive(key, 1));
  }
  return factors;
}

void ParseLongRope(const ConfigSection& rope, TextConfig* text) {
  ParseStretch(rope, text);
  const double factor = text->rope_factor;
  const auto original = static_cast<double>(text->rope_original_max_position_embeddings);
  if (original < 2) rope.Refuse(kOriginal, "must be at least 2 for 'longrope'");
  const double scale = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  text->rope_attention_factor = rope.Positive("attention_factor", scale);
  text->rope_short_factor = ParseFactors(rope, "short_factor", text->rotary_dim() / 2);
  text->rope_long_factor = ParseFactors(rope, "long_factor", text->rotary_dim() / 2);
}

// The numbers of the scaling, of a model that was read from nowhere.
Json RopeNumbers(const TextConfig& text) {
  const std::string& type = text.rope_type;
  Json rope = Json::object();
  if (text.partial_rotary_factor != 1) rope[kPart] = text.partial_rotary_factor;
  if (type == "default") return rope;
  rope["factor"] = text.rope_factor;
  if (type == "linear" || type == "dynamic") return rope;
  rope[kOriginal] = text.rope_original_max_position_embeddings;
  if (type == "llama3") {
    rope["low_freq_factor"] = text.rope_low_freq_factor;
    rope["high_freq_factor"] = text.rope_high_freq_factor;
    return rope;
  }
  rope["attention_factor"] = text.rope_attention_factor;
  if (type == "yarn") {
    rope["beta_fast"] = text.rope_beta_fast;
    rope["beta_slow"] = text.rope_beta_slow;
    rope["truncate"] = text.rope_truncate;
  } else {
    rope["short_factor"] = text.rope_short_factor;
    rope["long_factor"] = text.rope_long_factor;
  }
  return rope;
}

}  // namespace

void ParseRope(const ConfigSection& section, const RopeRules& rules, TextConfig* text) {
  const char* key = RopeKey(section.json);
  const Json none = Json::object();
  const ConfigSection rope =
      section.Has(key) ? Subsection(section, key) : ConfigSection{none, section.where + ": " + key};
  text->rope_theta = rope.Positive("rope_theta", section.Positive("rope_theta", 10000.0));
  ParseType(rope, rules, text);
  ParsePart(section, rope, rules, text);
  const std::string& type = text->rope_type;
  if (type == "linear" || type == "dynamic") ParseFactor(rope, text);
  if (type == "llama3") ParseLlama3(rope, text);
  if (type == "yarn" || type == "longrope") ParseOriginal(section, rope, rules, text);
  if (type == "yarn") ParseYarn(rope, text);
  if (type == "longrope") ParseLongRope(rope, text);
}

void WriteRope(const TextConfig& text, Json* json) {
  const char* key = RopeKey(*json);
  Json rope = json->contains(key) && (*json)[key].is_object() ? (*json)[key] : RopeNumbers(text);
  rope["rope_type"] = text.rope_type;
  if (rope.contains("type")) rope["type"] = text.rope_type;
  rope["rope_theta"] = text.rope_theta;
  (*json)["rope_theta"] = text.rope_theta;
  (*json)["rope_parameters"] = rope;
  // Transformers 4 reads this; 5 prefers it where both are present, so they must agree.
  (*json)["rope_scaling"] = text.rope_type == "default" ? Json(nullptr) : rope;
}

}  // namespace equipoise
