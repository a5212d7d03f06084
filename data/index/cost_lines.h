#pragma once

#include <string>
#include <vector>

#include "balance/load/sample_groups.h"
#include "models/spec/image_spec.h"

namespace equipoise {

// Sizes of samples from a JSONL file, one object a line: `{"vit_num":3,"token_num":811}`, tiles (of
// `images`) and tokens; `target_num`, tokens with a loss, may follow and is otherwise `token_num`;
// `image_flags` or `image_flag` (tiles that are real pictures, in OmniBal's files) and `id` are
// ignored. Sample i is line i + 1. Throws DataError that begins with `path:line:` for anything
// else: another or a missing key, an empty line, a sample without tokens.
std::vector<SampleSize> ReadCostLines(const std::string& path, const ImageSpec& images);

}  // namespace equipoise
