#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace equipoise {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` (valid UTF-8) in the given normal forms, one after the other. O(n log n), also for hostile
// runs of combining marks.
std::string Normalize(std::string_view text, const std::vector<NormalForm>& forms);

}  // namespace equipoise
