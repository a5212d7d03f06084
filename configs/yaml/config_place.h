#pragma once

#include <string>
#include <vector>

namespace equipoise {

// Adds a value's place to a message that begins with its dotted key (`model.freeze: ...`):
// `file:line:col: `, or `--set a.b=c: ` where one of `settings` sets it; of a key that an item of a
// list lacks (`data.train.0.images`), the item's. Returns any other message, and one about a value
// that is given nowhere, unchanged. Reads the file at `path` again.
std::string WithPlace(const std::string& message, const std::string& path,
                      const std::vector<std::string>& settings);

}  // namespace equipoise
