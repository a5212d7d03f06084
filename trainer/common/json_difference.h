#pragma once

#include <string>
#include <vector>

#include "configs/base/json.h"

namespace equipoise {

// A difference between two JSON values.
struct JsonDifference {
  std::string key;     // dotted path, `[i]` in lists; empty: the whole value
  std::string first;   // JSON text, or "absent"
  std::string second;  // likewise
};

// All differences, of the innermost values: objects are compared by key, lists of equal length by
// element.
std::vector<JsonDifference> JsonDifferences(const Json& first, const Json& second);

// A list of differences as KEY + `verb` + FIRST + `join` + SECOND, comma-separated, at most eight
// and the number of the others; with " was " and " and is ": "train.lr was 1 and is 2, data.cache
// was ...".
std::string ListDifferences(const std::vector<JsonDifference>& differences, const std::string& verb,
                            const std::string& join);

}  // namespace equipoise
