#include "data/records/record_videos.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "data/records/record_pictures.h"
#include "data/records/refusal.h"
#include "data/text/chat_template.h"

namespace equipoise {
namespace {

double PositiveNumber(const Json& value) {
  const double number = value.is_number() ? value.get<double>() : 0;
  if (!(number > 0) || !std::isfinite(number)) {
    Refuse(Defect::kBadField, "'fps' is no number above 0, the frames a second of a video");
  }
  return number;
}

// Of each of `count` videos.
std::vector<double> FpsOfEach(const Json& object, size_t count) {
  const auto found = object.find("fps");
  if (found == object.end() || !found->is_array()) {
    return std::vector<double>(count, FpsOf(object));
  }
  if (found->size() != count) {
    Refuse(Defect::kBadField,
           fmt::format("'fps' has {} numbers for {} videos", found->size(), count));
  }
  std::vector<double> all;
  for (const Json& one : *found) all.push_back(PositiveNumber(one));
  return all;
}

}  // namespace

double FpsOf(const Json& object) {
  const auto found = object.find("fps");
  return found == object.end() || found->is_null() ? 0 : PositiveNumber(*found);
}

void AddVideo(const Json& value, const std::string& what, double fps, Record& record) {
  if (value.is_object()) {
    const double own = FpsOf(value);
    for (const char* key : {"video", "frames", "path"}) {
      const auto found = value.find(key);
      if (found == value.end() || IsEmpty(*found) || found->is_object()) continue;
      return AddVideo(*found, what, own > 0 ? own : fps, record);
    }
  }
  Video video;
  video.fps = fps;
  video.first = record.images.size();
  if (value.is_string() && !IsEmpty(value)) {
    video.path = value.get<std::string>();
  } else if (value.is_array() && !value.empty()) {
    for (const Json& frame : value) AddPicture(frame, "a frame of " + what, record);
    video.frames = value.size();
  } else {
    Refuse(Defect::kBadField,
           what + ": a video is a file, a folder of its frames or a list of them");
  }
  record.videos.push_back(video);
}

// LLaVA-NeXT's records of videos have `<image>` where the video stands.
void PlaceByImageMarks(Record& record) {
  constexpr std::string_view kImage = "<image>";
  size_t marks = 0;
  for (const Turn& turn : record.turns) {
    if (CountOf("<video>", turn.text) > 0) return;
    if (turn.role == Role::kUser) marks += CountOf(kImage, turn.text);
  }
  if (record.pictures() > 0 || marks != record.videos.size()) return;
  for (Turn& turn : record.turns) {
    if (turn.role != Role::kUser) continue;
    size_t at = 0;
    while ((at = turn.text.find(kImage, at)) != std::string::npos)
      turn.text.replace(at, kImage.size(), "<video>");
  }
}

void ReadVideos(const Json& object, Record& record) {
  const Json none, &one = object.contains("video") ? object["video"] : none;
  const Json& several = object.contains("videos") ? object["videos"] : none;
  const bool in_parts = !record.videos.empty(), given = !IsEmpty(one) || !IsEmpty(several);
  if (!in_parts && !given) return;
  if ((in_parts && given) || (!IsEmpty(one) && !IsEmpty(several)) ||
      (!IsEmpty(several) && !several.is_array())) {
    Refuse(Defect::kBadField,
           "a record has videos in its turns, a 'video', or a list of 'videos'; leave one");
  }
  if (!IsEmpty(one)) AddVideo(one, "'video'", FpsOfEach(object, 1)[0], record);
  if (!IsEmpty(several)) {
    const std::vector<double> fps = FpsOfEach(object, several.size());
    for (size_t i = 0; i < several.size(); ++i) {
      AddVideo(several[i], "an item of 'videos'", fps[i], record);
    }
  }
  PlaceByImageMarks(record);
  const std::string wrong = PlaceVideos(record.turns, record.videos.size());
  if (!wrong.empty()) Refuse(Defect::kPlaceholders, wrong);
}

}  // namespace equipoise
