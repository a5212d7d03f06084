#include "data/records/shard.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "configs/base/error.h"
#include "data/records/known_keys.h"
#include "data/records/record_forms.h"
#include "data/records/refusal.h"
#include "data/records/tar_reader.h"
#include "data/text/chat_template.h"
#include "data/text/utf8.h"

namespace equipoise {
namespace {

struct SampleName {
  std::string_view key, extension;
};

std::optional<SampleName> SplitName(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  const size_t dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base) return std::nullopt;
  return SampleName{name.substr(0, dot), name.substr(dot + 1)};
}

std::string_view BaseName(std::string_view name) { return name.substr(name.rfind('/') + 1); }

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

// Whether the last part of `left.jpg` is one of these, in either case.
template <size_t kCount>
bool EndsWith(std::string_view extension, const std::array<std::string_view, kCount>& kinds) {
  const std::string last = Lower(extension.substr(extension.rfind('.') + 1));
  return std::find(kinds.begin(), kinds.end(), last) != kinds.end();
}

// Kinds that are not read are pictures too: they are named.
bool IsPicture(std::string_view extension) {
  return EndsWith<10>(extension,
                      {"jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "heic", "avif"});
}

bool IsVideo(std::string_view extension) {
  return EndsWith<6>(extension, {"mp4", "m4v", "mov", "mkv", "webm", "avi"});
}

// A picture or video.
struct Member {
  std::string name;
  std::string_view bytes;
};

struct ShardSample {
  std::string key;
  std::optional<std::string_view> json, text;
  std::string text_name;  // of that member
  std::vector<Member> pictures, videos;
};

[[noreturn]] void RefuseTwice(const std::string& name) {
  Refuse(Defect::kBadField, ShownName(name) + " is in the sample twice");
}

void SetOnce(std::optional<std::string_view>& member, std::string_view bytes,
             const std::string& name) {
  if (member) RefuseTwice(name);
  member = bytes;
}

// The number in a member's name behind the sample's key, of `000.12.jpg`; nothing for another name.
std::optional<int> NumberOf(const Member& member) {
  const std::string_view extension = SplitName(member.name)->extension;
  const std::string_view digits = extension.substr(0, extension.find('.'));
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

// By their numbers where all have one: a writer sorts names as texts, 10 before 2.
void SortByNumber(std::vector<Member>& members) {
  if (!std::ranges::all_of(members, [](const Member& each) { return NumberOf(each).has_value(); }))
    return;
  std::ranges::stable_sort(members, {}, [](const Member& each) { return *NumberOf(each); });
}

ShardSample ReadSample(std::string_view bytes) {
  ShardSample sample;
  TarReader members("the sample", bytes.size(), [bytes](uint64_t offset, uint64_t count) {
    return offset > bytes.size() ? std::string() : std::string(bytes.substr(offset, count));
  });
  std::unordered_set<std::string> shown;  // names of pictures and videos
  for (TarMember member; members.Next(member);) {
    const auto name = SplitName(member.name);
    if (!name) continue;
    sample.key = name->key;
    const std::string_view content = bytes.substr(member.offset, member.bytes);
    const std::string extension = Lower(name->extension);
    if (extension == "json") SetOnce(sample.json, content, member.name);
    if (extension == "txt") {
      SetOnce(sample.text, content, member.name);
      sample.text_name = member.name;
    }
    const bool picture = IsPicture(name->extension), video = IsVideo(name->extension);
    // Of two of one name a record's name finds the first alone.
    if ((picture || video) && !shown.insert(member.name).second) RefuseTwice(member.name);
    if (picture) sample.pictures.push_back({member.name, content});
    if (video) sample.videos.push_back({member.name, content});
  }
  SortByNumber(sample.pictures);
  return sample;
}

// The member that a record's path means, by its name or by what stands behind the sample's key,
// its name to WebDataset; null where there is none.
const Member* FindMember(const std::vector<Member>& members, std::string_view path) {
  for (const Member& member : members) {
    if (member.name == path || BaseName(member.name) == BaseName(path)) return &member;
  }
  for (const Member& member : members) {
    if (SplitName(member.name)->extension == BaseName(path)) return &member;
  }
  return nullptr;
}

// Puts the members' bytes in the places of the videos that the record names.
void TakeVideos(const std::vector<Member>& members, Record& record) {
  if (record.videos.empty() && record.images.empty() && !members.empty()) {
    for (const Member& member : members) record.videos.push_back({member.name});
    const std::string wrong = PlaceVideos(record.turns, record.videos.size());
    if (!wrong.empty()) Refuse(Defect::kPlaceholders, wrong);
  }
  for (Video& video : record.videos) {
    if (video.path.empty()) continue;  // its frames are listed
    const Member* found = FindMember(members, video.path);
    if (found == nullptr) {
      Refuse(Defect::kImageMissing,
             ShownName(video.path) +
                 ": no such member in the shard's sample, which has no folders; name a video by "
                 "its member, or list its frames by theirs");
    }
    if (found->bytes.empty())
      Refuse(Defect::kImageUnreadable, ShownName(found->name) + ": has no bytes");
    video.path = found->name;
    video.held = found->bytes;
  }
}

// Puts the members' bytes in the places of the pictures that the record names.
void TakePictures(const std::vector<Member>& pictures, Record& record) {
  if (record.images.empty() && record.videos.empty()) {
    for (const Member& picture : pictures) record.images.push_back(picture.name);
  }
  record.held.resize(record.images.size());
  const bool in_order =
      record.images.size() == pictures.size() &&
      std::none_of(record.images.begin(), record.images.end(),
                   [&](const std::string& path) { return FindMember(pictures, path) != nullptr; });
  for (size_t i = 0; i < record.images.size(); ++i) {
    if (!record.held[i].empty()) continue;  // a data URL
    const Member* picture = in_order ? &pictures[i] : FindMember(pictures, record.images[i]);
    if (picture == nullptr) {
      Refuse(Defect::kImageMissing,
             ShownName(record.images[i]) + ": no such member in the shard's sample");
    }
    if (picture->bytes.empty()) {
      Refuse(Defect::kImageUnreadable, ShownName(picture->name) + ": has no bytes");
    }
    record.images[i] = picture->name;
    record.held[i] = picture->bytes;
  }
}

Record ReadRecord(const ShardSample& sample, const RecordKeys& keys) {
  Record record;
  record.id = sample.key;
  if (sample.json && (!sample.text || keys.given() || HasConversation(*sample.json))) {
    std::string held;
    ReadConversation(InKnownKeys(*sample.json, keys, held), record);
    if (record.id.empty()) record.id = sample.key;
  } else if (sample.text) {
    if (!IsValidUtf8(*sample.text))
      Refuse(Defect::kBadJson, ShownName(sample.text_name) + " is not UTF-8");
    std::string question;
    for (size_t i = 0; i < sample.pictures.size(); ++i) question += "<image>";
    if (sample.pictures.empty()) {
      for (size_t i = 0; i < sample.videos.size(); ++i) question += "<video>";
    }
    record.turns = {{Role::kUser, question}, {Role::kAssistant, std::string(*sample.text)}};
  } else {
    Refuse(Defect::kNoConversation, "the sample " + ShownName(sample.key) +
                                        " has neither a json nor a txt member; write the members "
                                        "of a sample one behind the other");
  }
  TakePictures(sample.pictures, record);
  TakeVideos(sample.videos, record);
  return record;
}

}  // namespace

std::vector<RecordExtent> FindSamples(TarReader& members) {
  std::vector<RecordExtent> samples;
  std::string key;
  for (TarMember member; members.Next(member);) {
    const auto name = SplitName(member.name);
    if (!name) continue;
    if (samples.empty() || name->key != key) {
      key = name->key;
      samples.push_back({member.begin, 0});
    }
    samples.back().bytes = member.end - samples.back().offset;
  }
  return samples;
}

std::vector<RecordExtent> ScanShard(const TextFile& file) {
  TarReader members(
      file.path, static_cast<uint64_t>(file.bytes),
      [&file](uint64_t offset, uint64_t bytes) { return ReadAt(file, offset, bytes); });
  std::vector<RecordExtent> samples = FindSamples(members);
  if (samples.empty()) {
    throw DataError(file.path +
                    ": holds no samples: no member is named KEY.EXTENSION, such as 000.jpg and "
                    "000.json");
  }
  return samples;
}

bool HasEndMark(const TextFile& file) {
  constexpr int64_t kBlock = 512;
  const int64_t last = std::max<int64_t>(file.bytes - kBlock, 0);
  return ReadAt(file, static_cast<uint64_t>(last), kBlock).find_first_not_of('\0') ==
         std::string::npos;
}

ParsedRecord ParseShardRecord(std::string_view sample, const RecordKeys& keys) {
  return Guarded([&](Record& record) {
    const ShardSample members = ReadSample(sample);
    record.id = members.key;
    record = ReadRecord(members, keys);
    CheckRecord(record);
  });
}

}  // namespace equipoise
