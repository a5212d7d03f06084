#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/json.h"

namespace equipoise {

// Limits on sizes: far above every published model, and small enough that no product of two
// overflows int64_t.
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxVocabulary = int64_t{1} << 26;
constexpr int64_t kMaxPositions = int64_t{1} << 31;
constexpr int64_t kMaxPixels = int64_t{1} << 14;
// Limit on frequencies, factors and epsilons; the largest theta published is 1e9.
constexpr double kMaxFactor = 1e15;

// Joins words for a message: "a, b or c".
inline std::string ChoicesText(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 < words.size() ? ", " : " or ") + words[i];
  }
  return text;
}

// One object of a config.json. `where` begins every message: the source, and the section if it is
// not the top level. Everything throws DataError that names the key.
struct ConfigSection {
  const Json& json;
  std::string where;

  [[noreturn]] void Refuse(const std::string& key, const std::string& what) const {
    throw DataError(where + ": " + key + ": " + what);
  }
  bool Has(const char* key) const { return json.contains(key) && !json[key].is_null(); }

  int64_t Size(const char* key, int64_t max) const {
    return Checked(key, GetInt(json, key, where), max);
  }
  int64_t Size(const char* key, int64_t max, int64_t fallback) const {
    return Checked(key, GetInt(json, key, where, fallback), max);
  }
  // A number of at least 0 and below 1; 0 when absent.
  double Share(const char* key) const {
    const double value = GetNumber(json, key, where, 0.0);
    if (!(value >= 0 && value < 1)) Refuse(key, "must be at least 0 and below 1");
    return value;
  }
  double Positive(const char* key, double fallback) const {
    const double value = GetNumber(json, key, where, fallback);
    if (!(value > 0) || value > kMaxFactor) {
      Refuse(key, fmt::format("must be above 0 and at most {}", kMaxFactor));
    }
    return value;
  }
  // Scale of initial weights, 0 to 100; beyond 1 a network of many layers does not start to train.
  double InitialScale(const char* key, double fallback) const {
    const double value = GetNumber(json, key, where, fallback);
    if (!(value >= 0 && value <= 100)) Refuse(key, "must be between 0 and 100");
    return value;
  }
  bool Flag(const char* key, bool fallback) const { return GetBool(json, key, where, fallback); }

  // RequireX() refuse every value but `only`: one choice of the format is supported.
  void RequireText(const char* key, const std::string& only) const {
    const std::string value = GetString(json, key, where, only);
    if (value != only) {
      Refuse(key, fmt::format("'{}' is not supported, only '{}' is", value, only));
    }
  }
  void RequireFlag(const char* key, bool only) const {
    if (Flag(key, only) != only) {
      Refuse(key, std::string(only ? "false" : "true") + " is not supported");
    }
  }
  void RequireNoDropout(const char* key) const {
    if (GetNumber(json, key, where, 0.0) != 0.0) {
      Refuse(key, "dropout is not supported; set it to 0 to go on without");
    }
  }
  // A size given as a number or as a list of two equal ones.
  int64_t Square(const char* key, int64_t max, int64_t fallback) const {
    if (!Has(key) || !json[key].is_array()) return Size(key, max, fallback);
    const Json& list = json[key];
    if (list.size() != 2 || list[0] != list[1]) Refuse(key, "must be one size or two equal ones");
    return Checked(key, GetInt(Json{{key, list[0]}}, key, where), max);
  }
  // A token id, or the first of a list; -1 when absent.
  int64_t TokenId(const char* key) const {
    if (!Has(key)) return -1;
    if (!json[key].is_array()) return GetInt(json, key, where);
    if (json[key].empty()) return -1;
    return GetInt(Json{{key, json[key][0]}}, key, where);
  }

 private:
  int64_t Checked(const char* key, int64_t value, int64_t max) const {
    if (value < 1 || value > max) {
      Refuse(key, fmt::format("{} is not between 1 and {}", value, max));
    }
    return value;
  }
};

// The object under `key`. Throws DataError where there is none.
inline ConfigSection Subsection(const ConfigSection& parent, const char* key) {
  if (!parent.Has(key)) parent.Refuse(key, "missing");
  if (!parent.json[key].is_object()) parent.Refuse(key, "not an object");
  return {parent.json[key], parent.where + ": " + key};
}

}  // namespace equipoise
