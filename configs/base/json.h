#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace equipoise {

using Json = nlohmann::json;

// Limits on untrusted JSON. nlohmann itself parses 100,000 nested arrays and dies when it copies
// them, and keeps the last of two equal keys.
struct JsonLimits {
  int depth = 64;
  size_t bytes = size_t{1} << 30;
};

// Parses JSON from an untrusted source. Throws DataError that begins with `source:` (and
// `line:column:` of the fault) on bad syntax, duplicate keys, nesting beyond the limit, invalid
// UTF-8, trailing characters.
Json ParseJson(std::string_view text, const std::string& source, const JsonLimits& limits = {});

// Reads and parses a file. Throws DataError.
Json ReadJsonFile(const std::string& path, const JsonLimits& limits = {});

// Typed access without silent conversions (1.9 is no integer, -1 no size). `source` begins the text
// of the DataError thrown when the key is absent or of another type.
int64_t GetInt(const Json& object, const char* key, const std::string& source);
double GetNumber(const Json& object, const char* key, const std::string& source);
bool GetBool(const Json& object, const char* key, const std::string& source);
std::string GetString(const Json& object, const char* key, const std::string& source);
// As above, with a value for an absent or null key.
int64_t GetInt(const Json& object, const char* key, const std::string& source, int64_t fallback);
double GetNumber(const Json& object, const char* key, const std::string& source, double fallback);
bool GetBool(const Json& object, const char* key, const std::string& source, bool fallback);
std::string GetString(const Json& object, const char* key, const std::string& source,
                      const std::string& fallback);

}  // namespace equipoise
