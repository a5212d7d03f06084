#include "data/records/record_pictures.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <utility>

#include "configs/base/base64.h"
#include "data/records/path_guard.h"
#include "data/records/refusal.h"

namespace equipoise {
namespace {

// Adds the bytes of a picture, under a name that tells pictures apart.
void AddBytes(std::optional<std::string> bytes, Record& record) {
  const std::string name = fmt::format("picture {} of the record", record.images.size() + 1);
  if (!bytes) Refuse(Defect::kImageUnreadable, name + ": is not Base64; encode it again");
  if (bytes->empty()) Refuse(Defect::kImageUnreadable, name + ": has no bytes");
  record.images.push_back(
      fmt::format("{} ({:016x})", name, XXH3_64bits(bytes->data(), bytes->size())));
  record.held.resize(record.images.size());
  record.held.back() = std::move(*bytes);
}

// Base64 without the head of a data URL, as ms-swift takes it: too long for a path, and begins as a
// picture's bytes do.
bool IsBase64(std::string_view text) {
  constexpr size_t kLongestPath = 200;
  constexpr std::array<std::string_view, 7> kHeads = {"/9j/",  "iVBORw0KGgo", "R0lGOD", "UklGR",
                                                      "SUkqA", "TU0AK",       "Qk"};
  return text.size() > kLongestPath &&
         std::any_of(kHeads.begin(), kHeads.end(),
                     [&](std::string_view head) { return text.starts_with(head); });
}

void AddText(const std::string& text, Record& record) {
  if (IsBase64(text)) {
    constexpr size_t kLongestPathOfAll = 4096;  // PATH_MAX
    auto bytes = FromBase64(text);
    if (bytes || text.size() > kLongestPathOfAll) return AddBytes(std::move(bytes), record);
  }
  if (text.starts_with("data:")) {
    const size_t comma = text.find(',');
    if (comma == std::string::npos || !text.substr(0, comma).ends_with(";base64")) {
      Refuse(Defect::kImageUnreadable,
             ShownName(text.substr(0, 40)) + ": a data URL without Base64; encode it so");
    }
    return AddBytes(FromBase64(std::string_view(text).substr(comma + 1)), record);
  }
  record.images.push_back(text);
  if (!record.held.empty()) record.held.emplace_back();
}

// The text with a placeholder in place of each <img>PATH</img>, whose paths go to `record`.
std::string WithoutPaths(std::string_view text, Record& record) {
  constexpr std::string_view kBegin = "<img>", kEnd = "</img>";
  std::string out;
  for (size_t end = text.find(kEnd); end != text.npos; end = text.find(kEnd)) {
    const std::string_view before = text.substr(0, end);
    const size_t begin = before.rfind(kBegin);
    const std::string_view path = begin == before.npos ? "" : before.substr(begin + kBegin.size());
    if (IsPictureName(path.substr(path.rfind('/') + 1))) {
      out += before.substr(0, begin);
      out += "<image>";
      AddText(std::string(path), record);
    } else {
      out += before;
      out += kEnd;
    }
    text.remove_prefix(end + kEnd.size());
  }
  return out.append(text);
}

}  // namespace

bool IsEmpty(const Json& value) {
  return value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         (value.is_array() && value.empty());
}

void AddPicture(const Json& value, const std::string& what, Record& record) {
  if (value.is_object()) {
    const auto bytes = value.find("bytes");
    if (bytes != value.end() && bytes->is_string())
      return AddBytes(FromBase64(bytes->get_ref<const std::string&>()), record);
    if (bytes != value.end() && bytes->is_number_unsigned() &&
        bytes->get<uint64_t>() < record.given.size())
      return AddBytes(record.given[bytes->get<size_t>()], record);
    const auto inner = value.find("image");
    if (inner != value.end() && inner->is_object()) return AddPicture(*inner, what, record);
    for (const char* key : {"path", "url", "image"}) {
      const auto found = value.find(key);
      if (found != value.end() && !IsEmpty(*found) && found->is_string())
        return AddText(found->get_ref<const std::string&>(), record);
    }
  }
  if (!value.is_string() || IsEmpty(value)) {
    Refuse(Defect::kBadField,
           what + " is no picture: neither a path nor a data URL nor an object with one");
  }
  AddText(value.get_ref<const std::string&>(), record);
}

void ReadPictures(const Json& object, Record& record) {
  const Json* value = nullptr;
  std::string name;
  for (const char* key : {"image", "images"}) {
    const auto found = object.find(key);
    if (found == object.end() || IsEmpty(*found)) continue;
    if (value != nullptr) Refuse(Defect::kBadField, "both 'image' and 'images' are given");
    value = &*found;
    name = fmt::format("'{}'", key);
  }
  if (value == nullptr) return;
  if (!value->is_array()) return AddPicture(*value, name, record);
  for (const Json& item : *value) AddPicture(item, "an item of " + name, record);
}

void TakePathsInText(Record& record) {
  if (!record.images.empty() || !record.videos.empty()) return;
  for (Turn& turn : record.turns) {
    if (turn.role == Role::kUser) turn.text = WithoutPaths(turn.text, record);
  }
}

}  // namespace equipoise
