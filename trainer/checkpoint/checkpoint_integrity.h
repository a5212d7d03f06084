#pragma once

#include <string>
#include <string_view>

#include "trainer/common/durable_file.h"

namespace equipoise {

// Checks that a checkpoint is as it was written, and that it can be trained on. LibTorch-free.

// The text of a JSON object of several lines, with the XXH3-64 of all of that but its end as the
// last key: `,\n "xxh3_64": "..."\n}\n`. So every byte is covered, and it is JSON still.
std::string WithChecksum(const std::string& object);

// Whether a text ends that way. Throws DataError that begins with `source:` where it does with
// another checksum than its own.
bool HasChecksum(std::string_view text, const std::string& source);

struct TensorScan {
  FileSum sum;             // of the file
  std::string not_finite;  // "tensor X: element 3 is nan", the first; empty: there is none
};
// Reads a safetensors file once. Throws DataError where it is none, or cannot be read.
TensorScan ScanTensors(const std::string& path);

}  // namespace equipoise
