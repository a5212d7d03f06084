#include "data/records/video_frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "data/records/refusal.h"
#include "data/text/chat_template.h"

namespace equipoise {
namespace {

constexpr std::string_view kImage = "<image>", kVideo = "<video>";

// A picture or frame of a record, and its bytes where they lie in the record itself.
struct Shown {
  std::string image, held;
};

// Builder of a record whose videos are arranged.
class Arranger {
 public:
  Arranger(const ImageFolder& folder, const ImageSpec& images, int64_t most_frames, Record& record)
      : folder_(folder),
        spec_(images),
        most_frames_(most_frames),
        record_(record),
        images_(std::move(record.images)),
        held_(std::move(record.held)),
        videos_(std::move(record.videos)) {
    record.images.clear();
    record.held.clear();
    record.videos.clear();
  }

  void Run() {
    for (const Video& video : videos_) {
      for (size_t i = 0; i < video.frames; ++i) frames_.push_back(video.first + i);
    }
    for (Turn& turn : record_.turns) {
      if (!turn.videos) continue;
      turn.text = Arranged(turn.text);
      turn.videos = spec_.takes_videos();
    }
  }

 private:
  // The text of a turn, whose pictures and videos go to the record.
  std::string Arranged(std::string_view text) {
    std::string out;
    while (true) {
      const size_t image = text.find(kImage), video = text.find(kVideo);
      const size_t at = std::min(image, video);
      out += text.substr(0, at);
      if (at == std::string_view::npos) return out;
      if (image < video) {
        while (std::binary_search(frames_.begin(), frames_.end(), next_image_)) ++next_image_;
        Show(Take(next_image_++));
        out += kImage;
      } else {
        out += TextOf(videos_[next_video_++]);
      }
      text.remove_prefix(at + kImage.size());  // of the same length as <video>
    }
  }

  Shown Take(size_t image) const {
    return {images_[image], held_.empty() ? std::string() : held_[image]};
  }

  void Show(Shown shown) {
    record_.images.push_back(std::move(shown.image));
    if (!held_.empty()) record_.held.push_back(std::move(shown.held));
  }

  std::vector<Shown> FramesOf(const Video& video) const {
    std::vector<Shown> frames;
    for (size_t i = 0; i < video.frames; ++i) frames.push_back(Take(video.first + i));
    if (video.folder.empty()) return frames;
    FolderPictures listed = folder_.List(video.folder);
    if (listed.defect != Defect::kNone) Refuse(listed.defect, listed.reason);
    for (std::string& path : listed.paths) frames.push_back({std::move(path), ""});
    return frames;
  }

  // Shows the frames of a video; returns the text in its place.
  std::string TextOf(const Video& video) {
    std::vector<Shown> all = FramesOf(video);
    const std::vector<int64_t> numbers = SampledFrames(std::ssize(all), most_frames_);
    const size_t first = record_.images.size(), count = numbers.size();
    // Of unknown ones as Transformers counts: as many a second, however many are kept.
    const double fps = video.fps > 0 ? video.fps : kDefaultFps;
    const double shown = video.fps > 0
                             ? static_cast<double>(count) / static_cast<double>(all.size()) * fps
                             : kDefaultFps;
    for (const int64_t number : numbers) Show(std::move(all[static_cast<size_t>(number)]));
    std::string text;
    if (!spec_.takes_videos()) {
      for (size_t i = 0; i < count; ++i) {
        text += fmt::format("{}Frame-{}: {}", i == 0 ? "" : "\n", i + 1, kImage);
      }
      return text;
    }
    const size_t part = spec_.videos.timestamps ? static_cast<size_t>(spec_.frames) : count;
    for (size_t begin = 0; begin < count; begin += part) {
      const size_t end = std::min(begin + part, count);
      record_.videos.push_back({"", first + begin, end - begin, shown, count});
      if (spec_.videos.timestamps) {
        const auto seconds = [&](size_t i) { return static_cast<double>(numbers[i]) / fps; };
        text += fmt::format("<{:.1f} seconds>", (seconds(begin) + seconds(end - 1)) / 2);
      }
      text += kVideo;
    }
    return text;
  }

  const ImageFolder& folder_;
  const ImageSpec& spec_;
  const int64_t most_frames_;
  Record& record_;
  const std::vector<std::string> images_, held_;
  const std::vector<Video> videos_;
  std::vector<size_t> frames_;  // places of listed frames in images_, ascending
  size_t next_image_ = 0, next_video_ = 0;
};

}  // namespace

std::vector<int64_t> SampledFrames(int64_t frames, int64_t most) {
  const int64_t count = most > 0 ? std::min(frames, most) : frames;
  const double step =
      count > 1 ? static_cast<double>(frames - 1) / static_cast<double>(count - 1) : 0;
  std::vector<int64_t> numbers;
  // Halves go to the even number, as in NumPy's linspace(...).round().
  for (int64_t i = 0; i < count; ++i) {
    numbers.push_back(static_cast<int64_t>(std::nearbyint(static_cast<double>(i) * step)));
  }
  return numbers;
}

void ArrangeVideos(const ImageFolder& folder, const ImageSpec& images, int64_t most_frames,
                   Record& record) {
  if (record.videos.empty()) return;
  const std::string wrong = PlaceImages(record.turns, record.pictures());
  if (!wrong.empty()) Refuse(Defect::kPlaceholders, wrong);
  Arranger(folder, images, most_frames, record).Run();
}

}  // namespace equipoise
