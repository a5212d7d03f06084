#pragma once

#include <string>
#include <string_view>

#include "data/settings/record_keys.h"

namespace equipoise {

// A record's JSON in the keys of record_forms.h, where its source has others: `messages` with
// "role" and "content", or `instruction`, `input` and `output`; what no column names is left out
// but for its "id" and "objects". `text` itself where `keys` names none, else what is kept in
// `held`. Throws Refusal where a column is missing or of the wrong kind, and DataError for what is
// not JSON.
std::string_view InKnownKeys(std::string_view text, const RecordKeys& keys, std::string& held);

}  // namespace equipoise
