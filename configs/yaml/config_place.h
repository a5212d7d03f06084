#pragma once

#include <string>
#include <vector>

namespace equipoise {

// A message about a value, which begins with its dotted key (`model.freeze: ...`), with the value's
// place before it: `file:line:col: `, or `--set a.b=c: ` where one of `settings` has given it. Any
// other message, and one about a value that is given nowhere, as it is. Reads the file again.
std::string WithPlace(const std::string& message, const std::string& path,
                      const std::vector<std::string>& settings);

}  // namespace equipoise
