#pragma once

#include <map>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "trainer/checkpoint/checkpoint_index.h"

namespace equipoise {

// Pieces of tensors as docs/checkpoint_format.md writes them.

// The key in a file's metadata under which it tells those of its pieces that are no whole tensors,
// by name.
inline constexpr const char* kPiecesKey = "pieces";

// {shape, dim, begin, end, runs}, and back. Throws DataError that begins with `source:`.
Json PieceToJson(const TensorPiece& piece);
TensorPiece PieceFromJson(const Json& json, const std::string& source);

// `tensors` of index.json, and back. Throws DataError that begins with `source:`.
Json TensorsToJson(const std::map<std::string, std::vector<StoredPiece>>& tensors);
std::map<std::string, std::vector<StoredPiece>> TensorsFromJson(const Json& json,
                                                                const std::string& source);

}  // namespace equipoise
