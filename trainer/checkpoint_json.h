#pragma once

#include <map>
#include <string>
#include <vector>

#include "configs/json.h"
#include "trainer/checkpoint.h"

namespace equipoise {

// Pieces of tensors as docs/checkpoint_format.md writes them.

// The key in a file's metadata under which it tells its pieces.
inline constexpr const char* kPiecesKey = "pieces";

// Of each piece that is no whole tensor: {NAME: {shape, dim, begin, end, runs}}.
Json PiecesToJson(const std::map<std::string, HeldPiece>& tensors);

// One of those objects. Throws DataError that begins with `source:`.
TensorPiece PieceFromJson(const Json& json, const std::string& source);

// `tensors` of index.json, and back. Throws DataError that begins with `source:`.
Json TensorsToJson(const std::map<std::string, std::vector<StoredPiece>>& tensors);
std::map<std::string, std::vector<StoredPiece>> TensorsFromJson(const Json& json,
                                                                const std::string& source);

}  // namespace equipoise
