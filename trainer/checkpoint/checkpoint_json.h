#pragma once

#include <map>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "trainer/checkpoint/checkpoint_index.h"

namespace equipoise {

// JSON of the pieces of tensors, as specified in docs/checkpoint_format.md.

// The key of a file's metadata that lists, by name, tensors that are pieces of a larger tensor.
inline constexpr const char* kPiecesKey = "pieces";

// Conversion to {shape, dim, begin, end, runs} and back. Throws DataError that begins with
// `source:`.
Json PieceToJson(const TensorPiece& piece);
TensorPiece PieceFromJson(const Json& json, const std::string& source);

// Conversion to `tensors` of index.json and back. Throws DataError that begins with `source:`.
Json TensorsToJson(const std::map<std::string, std::vector<StoredPiece>>& tensors);
std::map<std::string, std::vector<StoredPiece>> TensorsFromJson(const Json& json,
                                                                const std::string& source);

}  // namespace equipoise
