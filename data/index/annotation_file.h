#pragma once

#include "data/records/line_reader.h"

namespace equipoise {

// Checks by the first bytes of an annotations file that it holds one JSON object a line. Throws
// DataError that names what it is instead, and what to do: compressed files, Parquet, JSON arrays,
// InternVL's meta files, files without a record.
void RequireJsonLines(const TextFile& file);

}  // namespace equipoise
