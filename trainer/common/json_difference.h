#pragma once

#include <string>
#include <vector>

#include "configs/base/json.h"

namespace equipoise {

// A place where two JSON values differ.
struct JsonDifference {
  std::string key;     // dotted path, `[i]` in lists; empty = the whole value
  std::string first;   // JSON text; "absent"
  std::string second;  // likewise
};

std::vector<JsonDifference> JsonDifferences(const Json& first, const Json& second);

// "KEY VERB FIRST JOIN SECOND" of each, comma-separated, eight at most and the number of the rest:
// with " was " and " and is ": "train.lr was 1 and is 2, data.cache was ...".
std::string ListDifferences(const std::vector<JsonDifference>& differences, const std::string& verb,
                            const std::string& join);

}  // namespace equipoise
