#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace equipoise {

using Json = nlohmann::json;

// Limits on untrusted JSON. nlohmann itself parses 100,000 nested arrays, and overflows the stack
// when it copies them.
struct JsonLimits {
  int depth = 64;
  size_t bytes = size_t{1} << 30;
};

// Parses JSON from an untrusted source. Throws DataError "source:line:column: what" on bad syntax,
// duplicate keys, nesting beyond the limit, invalid UTF-8 and trailing characters.
Json ParseJson(std::string_view text, const std::string& source, const JsonLimits& limits = {});

// Parses a file of JSON. Throws DataError as ParseJson(), and where the file cannot be read.
Json ReadJsonFile(const std::string& path, const JsonLimits& limits = {});

// The value of a key, without silent conversions (1.9 is no integer). Throws DataError that begins
// with `source` when the key is absent or of another type.
int64_t GetInt(const Json& object, const char* key, const std::string& source);
double GetNumber(const Json& object, const char* key, const std::string& source);
bool GetBool(const Json& object, const char* key, const std::string& source);
std::string GetString(const Json& object, const char* key, const std::string& source);
// The value of a key; `fallback` where it is absent or null.
int64_t GetInt(const Json& object, const char* key, const std::string& source, int64_t fallback);
double GetNumber(const Json& object, const char* key, const std::string& source, double fallback);
bool GetBool(const Json& object, const char* key, const std::string& source, bool fallback);
std::string GetString(const Json& object, const char* key, const std::string& source,
                      const std::string& fallback);

}  // namespace equipoise
