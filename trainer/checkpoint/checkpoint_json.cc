#include "trainer/checkpoint/checkpoint_json.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {
namespace {

// Everything but the shape, which all pieces of a tensor share.
Json PlaceToJson(const TensorPiece& piece) {
  Json json = Json::object();
  if (piece.dim >= 0) {
    json["dim"] = piece.dim;
    json["begin"] = piece.along.begin;
    json["end"] = piece.along.end;
  }
  for (const Range& run : piece.runs) json["runs"].push_back({run.begin, run.end});
  return json;
}

int64_t Integer(const Json& json, const std::string& source) {
  if (!json.is_number_integer())
    throw DataError(fmt::format("{}: {} is no integer", source, json.dump()));
  return json.get<int64_t>();
}

const Json& List(const Json& object, const char* key, const std::string& source) {
  if (!object.is_object() || !object.contains(key) || !object.at(key).is_array()) {
    throw DataError(
        fmt::format("{}: {}: missing, or no list; use another checkpoint", source, key));
  }
  return object.at(key);
}

std::vector<int64_t> ShapeFromJson(const Json& json, const std::string& source) {
  std::vector<int64_t> shape;
  for (const Json& size : List(json, "shape", source)) shape.push_back(Integer(size, source));
  return shape;
}

TensorPiece PlaceFromJson(std::vector<int64_t> shape, const Json& json, const std::string& source) {
  TensorPiece piece{std::move(shape), -1, {}, {}};
  if (json.contains("dim")) {
    const int64_t dim = GetInt(json, "dim", source);
    piece.dim =
        dim >= 0 && dim < static_cast<int64_t>(piece.shape.size()) ? static_cast<int>(dim) : -2;
    piece.along = {GetInt(json, "begin", source), GetInt(json, "end", source)};
  }
  if (json.contains("runs")) {
    for (const Json& run : List(json, "runs", source)) {
      if (!run.is_array() || run.size() != 2) {
        throw DataError(
            fmt::format("{}: runs: {} is no pair; use another checkpoint", source, run.dump()));
      }
      piece.runs.push_back({Integer(run[0], source), Integer(run[1], source)});
    }
  }
  const std::string fault = PieceFault(piece);
  if (!fault.empty()) throw DataError(fmt::format("{}: {}; use another checkpoint", source, fault));
  return piece;
}

}  // namespace

Json PieceToJson(const TensorPiece& piece) {
  Json json = PlaceToJson(piece);
  json["shape"] = piece.shape;
  return json;
}

TensorPiece PieceFromJson(const Json& json, const std::string& source) {
  return PlaceFromJson(ShapeFromJson(json, source), json, source);
}

Json TensorsToJson(const std::map<std::string, std::vector<StoredPiece>>& tensors) {
  Json json = Json::object();
  for (const auto& [name, pieces] : tensors) {
    if (pieces.size() == 1 && pieces[0].whole) {
      json[name] = pieces[0].file;
      continue;
    }
    Json list = Json::array();
    for (const StoredPiece& stored : pieces) {
      Json piece = PlaceToJson(stored.piece);
      piece["file"] = stored.file;
      list.push_back(std::move(piece));
    }
    json[name] = {{"shape", pieces[0].piece.shape}, {"pieces", std::move(list)}};
  }
  return json;
}

std::map<std::string, std::vector<StoredPiece>> TensorsFromJson(const Json& json,
                                                                const std::string& source) {
  std::map<std::string, std::vector<StoredPiece>> tensors;
  for (const auto& [name, value] : json.items()) {
    const std::string where = fmt::format("{}: tensor {}", source, name);
    if (value.is_string()) {
      tensors[name].push_back({value.get<std::string>(), {}, true});
      continue;
    }
    const std::vector<int64_t> shape = ShapeFromJson(value, where);
    for (const Json& piece : List(value, "pieces", where)) {
      tensors[name].push_back(
          {GetString(piece, "file", where), PlaceFromJson(shape, piece, where), false});
    }
  }
  return tensors;
}

}  // namespace equipoise
