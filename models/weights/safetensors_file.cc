#include "models/weights/safetensors_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/json.h"

namespace equipoise {
namespace {

// A file of 40,000 tensors has a header of 5 MB. The reference implementation allows ten times this
// limit, which is gigabytes of memory once parsed.
constexpr int64_t kMaxHeaderBytes = 10'000'000;
constexpr size_t kMaxDimensions = 64;

[[noreturn]] void Refuse(const std::string& path, const std::string& what) {
  throw DataError(path + ": " + what);
}

// A name from the file for a message: one line, of bounded length.
std::string Quoted(const std::string& name) {
  return Json(name.substr(0, 200)).dump(-1, ' ', true, Json::error_handler_t::replace);
}

// Reads an integer from 0 to the largest int64_t.
bool ReadSize(const Json& value, int64_t* size) {
  if (!value.is_number_unsigned() && !value.is_number_integer()) return false;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return false;
  }
  *size = value.get<int64_t>();
  return *size >= 0;
}

SafetensorsEntry ParseEntry(const Json& json, const std::string& where) {
  static const std::set<std::string> kKeys = {"dtype", "shape", "data_offsets"};
  if (!json.is_object()) throw DataError(where + ": not an object");
  for (const auto& [key, value] : json.items()) {
    if (kKeys.count(key) == 0) throw DataError(where + ": unknown key " + Quoted(key));
  }
  SafetensorsEntry entry;
  entry.dtype = GetString(json, "dtype", where);
  const int64_t element_size = SafetensorsElementSize(entry.dtype);
  if (element_size == 0) throw DataError(where + ": unknown dtype " + Quoted(entry.dtype));

  if (!json.contains("shape") || !json["shape"].is_array() ||
      json["shape"].size() > kMaxDimensions) {
    throw DataError(where + ": shape is no list of at most 64 sizes");
  }
  int64_t bytes = element_size;
  for (const Json& dim : json["shape"]) {
    int64_t size = 0;
    if (!ReadSize(dim, &size)) throw DataError(where + ": shape holds something that is no size");
    entry.shape.push_back(size);
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      throw DataError(where + ": the shape is too large");
    }
  }
  if (!json.contains("data_offsets") || !json["data_offsets"].is_array() ||
      json["data_offsets"].size() != 2 || !ReadSize(json["data_offsets"][0], &entry.begin) ||
      !ReadSize(json["data_offsets"][1], &entry.end) || entry.end < entry.begin) {
    throw DataError(where + ": data_offsets is no pair [begin, end]");
  }
  if (entry.end - entry.begin != bytes) {
    throw DataError(fmt::format("{}: {} bytes of data where shape and dtype need {}", where,
                                entry.end - entry.begin, bytes));
  }
  return entry;
}

void ParseMetadata(const Json& json, const std::string& path, SafetensorsHeader* header) {
  if (!json.is_object()) Refuse(path, "__metadata__ is not an object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      Refuse(path, "__metadata__: the value of " + Quoted(key) + " is not a string");
    }
    header->metadata[key] = value.get<std::string>();
  }
}

// Checks that tensors follow one another without gaps or overlaps and fill the data section: no
// bytes are hidden in the file, and a small header cannot name the same bytes a million times.
void CheckLayout(const SafetensorsHeader& header, int64_t data_bytes, const std::string& path) {
  std::vector<std::pair<const std::string*, const SafetensorsEntry*>> order;
  order.reserve(header.entries.size());
  for (const auto& [name, entry] : header.entries) order.emplace_back(&name, &entry);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::make_pair(a.second->begin, a.second->end) <
           std::make_pair(b.second->begin, b.second->end);
  });
  int64_t end = 0;
  for (const auto& [name, entry] : order) {
    if (entry->begin != end) {
      Refuse(path, fmt::format("the data of {} begins at {} where {} is expected (gap or overlap)",
                               Quoted(*name), entry->begin, end));
    }
    end = entry->end;
  }
  if (end != data_bytes) {
    Refuse(path,
           fmt::format(
               "the header describes {} bytes of data, the file has {}; download or write it again",
               end, data_bytes));
  }
}

void ReadAt(const FileHandle& file, const std::string& path, int64_t offset, int64_t bytes,
            void* target) {
  const ssize_t got = ReadFullyAt(file, target, static_cast<size_t>(bytes), offset);
  if (got < 0) Refuse(path, std::string("cannot read: ") + std::strerror(errno));
  if (got < bytes) Refuse(path, "ends early; was it changed while it was read?");
}

}  // namespace

int64_t SafetensorsElementSize(const std::string& dtype) {
  static const std::map<std::string, int64_t> kSizes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
      {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8}};
  const auto found = kSizes.find(dtype);
  return found == kSizes.end() ? 0 : found->second;
}

SafetensorsHeader ParseSafetensorsHeader(std::string_view text, int64_t data_bytes,
                                         const std::string& path) {
  if (text.empty() || text.front() != '{') Refuse(path, "the header does not begin with '{'");
  JsonLimits limits;
  limits.depth = 4;
  limits.bytes = kMaxHeaderBytes;
  const Json json = ParseJson(text, path, limits);
  SafetensorsHeader header;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      ParseMetadata(value, path, &header);
    } else {
      header.entries.emplace(name, ParseEntry(value, path + ": " + Quoted(name)));
    }
  }
  CheckLayout(header, data_bytes, path);
  return header;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  OpenedFile opened = OpenRegularFile(path);
  if (!opened.problem.empty()) Refuse(path, opened.problem);
  file_ = std::move(opened.file);
  if (opened.bytes < 8) Refuse(path, "too short for a safetensors file");
  unsigned char prefix[8];
  ReadAt(file_, path, 0, 8, prefix);
  if (std::memcmp(prefix, "version ", sizeof(prefix)) == 0)
    Refuse(path, "is Git LFS's pointer to the file; run `git lfs pull` in its folder");
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | prefix[i];
  if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    Refuse(path, fmt::format("a header of {} bytes is above the limit of {}; is this a safetensors "
                             "file?",
                             length, kMaxHeaderBytes));
  }
  if (length > static_cast<uint64_t>(opened.bytes - 8)) {
    Refuse(path, fmt::format("the header of {} bytes is cut off", length));
  }
  std::string text(length, '\0');
  ReadAt(file_, path, 8, static_cast<int64_t>(length), text.data());
  data_begin_ = 8 + static_cast<int64_t>(length);
  header_ = ParseSafetensorsHeader(text, opened.bytes - data_begin_, path);
}

SafetensorsFile::SafetensorsFile(const std::string& path, SafetensorsHeader header)
    : path_(path), header_(std::move(header)) {
  OpenedFile opened = OpenRegularFile(path);
  if (!opened.problem.empty()) Refuse(path, opened.problem);
  file_ = std::move(opened.file);
}

const SafetensorsEntry& SafetensorsFile::Find(const std::string& name) const {
  const auto found = header_.entries.find(name);
  if (found == header_.entries.end()) Refuse(path_, "holds no tensor " + Quoted(name));
  return found->second;
}

void SafetensorsFile::ReadBytes(int64_t begin, int64_t end, void* target) const {
  ReadAt(file_, path_, data_begin_ + begin, end - begin, target);
}

}  // namespace equipoise
