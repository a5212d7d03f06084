#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "trainer/common/durable_file.h"

namespace equipoise {

// Integrity checks of a checkpoint: checksums, and finite elements. LibTorch-free.

// A multi-line JSON object with the XXH3-64 of its text added as the last key: the closing brace is
// replaced by `,\n "xxh3_64": "..."\n}\n`. The result is JSON, and every byte of it is covered.
std::string WithChecksum(const std::string& object);

// Whether a text ends with a checksum as WithChecksum() adds it. Throws DataError that begins with
// `source:` when that is not the checksum of the text before it.
bool HasChecksum(std::string_view text, const std::string& source);

struct TensorScan {
  FileSum sum;             // size and checksum of the file
  std::string not_finite;  // the first infinite element or NaN, as part of a message; empty: none
};
// Reads a safetensors file once and checks its elements; calls `alive` after each part of a
// megabyte at most. Throws DataError when the file is not a safetensors file or cannot be read.
TensorScan ScanTensors(const std::string& path, const std::function<void()>& alive);

}  // namespace equipoise
