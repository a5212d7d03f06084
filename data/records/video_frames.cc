#include "data/records/video_frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "configs/base/file_handle.h"
#include "configs/base/shown_text.h"
#include "data/records/refusal.h"
#include "data/text/chat_template.h"
#include "data/videos/video_file.h"

namespace equipoise {
namespace {

constexpr std::string_view kImage = "<image>", kVideo = "<video>";

// A picture or frame of a record, and its bytes where the record has them.
struct Shown {
  std::string image, held;
  FileFrame file_frame = {};
};

// The frames of a video that are shown.
struct Chosen {
  std::vector<Shown> shown;
  std::vector<int64_t> numbers;  // of each, among all
  int64_t all = 0;
  double fps = 0;  // of all; 0: not known
};

// Builder of a record whose videos are arranged.
class Arranger {
 public:
  Arranger(const ImageFolder& folder, const ImageSpec& images, const VideoLimits& limits,
           Record& record)
      : folder_(folder),
        spec_(images),
        limits_(limits),
        record_(record),
        images_(std::move(record.images)),
        held_(std::move(record.held)),
        videos_(std::move(record.videos)) {
    record.images.clear();
    record.held.clear();
    record.file_frames.clear();
    record.videos.clear();
  }

  void Run() {
    for (const Video& video : videos_) {
      for (size_t i = 0; i < video.frames; ++i) frames_.push_back(video.first + i);
    }
    for (Turn& turn : record_.turns) {
      if (!turn.videos) continue;
      turn.frames = !spec_.takes_videos() && CountOf(kVideo, turn.text) > 0;
      turn.text = Arranged(turn.text);
      turn.videos = spec_.takes_videos();
    }
    if (!record_.held.empty()) record_.held.resize(record_.images.size());
    if (!record_.file_frames.empty()) record_.file_frames.resize(record_.images.size());
  }

 private:
  // The text of a turn, whose pictures and videos go to the record.
  std::string Arranged(std::string_view text) {
    std::string out;
    size_t done = 0;  // of the text
    // Each place is looked at once: a search for either would run to the text's end at each step.
    for (size_t at = text.find('<'); at != text.npos; at = text.find('<', at + 1)) {
      const bool image = text.substr(at).starts_with(kImage);
      if (!image && !text.substr(at).starts_with(kVideo)) continue;
      out += text.substr(done, at - done);
      done = at + kImage.size();  // of the same length as <video>
      if (image) {
        while (std::binary_search(frames_.begin(), frames_.end(), next_image_)) ++next_image_;
        Show(Take(next_image_++));
        out += kImage;
      } else {
        out += TextOf(videos_[next_video_++]);
      }
    }
    out += text.substr(done);
    return out;
  }

  Shown Take(size_t image) const {
    return {images_[image], held_.empty() ? std::string() : held_[image]};
  }

  void Show(Shown shown) {
    record_.images.push_back(std::move(shown.image));
    if (!shown.held.empty()) {
      record_.held.resize(record_.images.size());
      record_.held.back() = std::move(shown.held);
    }
    if (shown.file_frame.number >= 0) {
      record_.file_frames.resize(record_.images.size());
      record_.file_frames.back() = shown.file_frame;
    }
  }

  Chosen FramesOf(const Video& video) const {
    if (!video.held.empty()) {
      if (OpensVideos()) return FramesOfFile(video, video.held);
      Refuse(Defect::kBadField,
             ShownText(video.path) +
                 ": this program is built without what decodes videos; build it with --define "
                 "ffmpeg=1, or list the video's frames");
    }
    if (!video.path.empty() && OpensVideos()) {
      const OpenedImage opened = folder_.Open(video.path);
      if (opened.defect == Defect::kNone) return FramesOfFile(video, BytesOf(video, opened));
    }
    std::vector<Shown> frames;
    for (size_t i = 0; i < video.frames; ++i) frames.push_back(Take(video.first + i));
    if (!video.path.empty()) {
      FolderPictures listed = folder_.List(video.path);
      if (listed.defect != Defect::kNone) Refuse(listed.defect, listed.reason);
      for (std::string& path : listed.paths) frames.push_back({std::move(path), ""});
    }
    Chosen chosen;
    chosen.all = std::ssize(frames);
    chosen.fps = video.fps;
    chosen.numbers = SampledFrames(chosen.all, limits_.frames);
    for (const int64_t number : chosen.numbers)
      chosen.shown.push_back(std::move(frames[static_cast<size_t>(number)]));
    return chosen;
  }

  void RequireBytes(const Video& video, int64_t bytes) const {
    if (bytes > limits_.files.bytes) {
      Refuse(Defect::kImageTooLarge,
             ShownText(video.path) + ": larger than data.limits.image_bytes");
    }
  }

  std::string BytesOf(const Video& video, const OpenedImage& opened) const {
    RequireBytes(video, opened.bytes);
    std::string bytes(static_cast<size_t>(opened.bytes), '\0');
    if (ReadFullyAt(opened.file, bytes.data(), bytes.size(), 0) != opened.bytes)
      Refuse(Defect::kImageUnreadable, ShownText(video.path) + ": cannot be read");
    return bytes;
  }

  Chosen FramesOfFile(const Video& video, std::string bytes) const {
    const std::string name = ShownText(video.path);
    RequireBytes(video, std::ssize(bytes));
    Chosen chosen;
    try {
      const std::unique_ptr<VideoFile> file = OpenVideo(bytes, limits_.files);
      chosen.all = file->frames();
      chosen.fps = file->fps() > 0 ? file->fps() : kDefaultFps;
      chosen.numbers = SampledFrames(
          chosen.all, FramesTaken(chosen.all, chosen.fps, video.fps > 0 ? video.fps : kTakenFps,
                                  limits_.frames, spec_.frames));
      for (const int64_t number : chosen.numbers)
        chosen.shown.push_back({video.path, "", {number, file->size().width, file->size().height}});
    } catch (const VideoTooLarge& error) {
      Refuse(Defect::kImageTooLarge, name + ": " + error.what());
    } catch (const ImageError& error) {
      Refuse(Defect::kImageUnreadable, name + ": " + error.what());
    }
    chosen.shown[0].held = std::move(bytes);
    return chosen;
  }

  // Shows the frames of a video; returns the text in its place.
  std::string TextOf(const Video& video) {
    Chosen chosen = FramesOf(video);
    const std::vector<int64_t>& numbers = chosen.numbers;
    const size_t first = record_.images.size(), count = numbers.size();
    // Of unknown ones as Transformers counts: as many a second, however many are kept.
    const double fps = chosen.fps > 0 ? chosen.fps : kDefaultFps;
    const double shown = chosen.fps > 0
                             ? static_cast<double>(count) / static_cast<double>(chosen.all) * fps
                             : kDefaultFps;
    for (Shown& frame : chosen.shown) Show(std::move(frame));
    std::string text;
    if (!spec_.takes_videos()) {
      record_.is_frame.resize(record_.images.size());
      std::fill(record_.is_frame.end() - std::ssize(numbers), record_.is_frame.end(), 1);
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
  const VideoLimits limits_;
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

int64_t FramesTaken(int64_t frames, double fps, double rate, int64_t most, int64_t step) {
  constexpr double kLeast = 4;
  constexpr int64_t kMost = 768;
  const auto all = static_cast<double>(frames), unit = static_cast<double>(step);
  const double least = std::ceil(kLeast / unit) * unit;
  const double limit =
      std::floor(std::min(all, static_cast<double>(most > 0 ? most : kMost)) / unit);
  const double taken = std::min({std::max(all / fps * rate, least), limit * unit, all});
  return std::max<int64_t>(1, static_cast<int64_t>(std::floor(taken / unit) * unit));
}

void ArrangeVideos(const ImageFolder& folder, const ImageSpec& images, const VideoLimits& limits,
                   Record& record) {
  if (record.videos.empty()) return;
  const std::string wrong = PlaceImages(record.turns, record.pictures());
  if (!wrong.empty()) Refuse(Defect::kPlaceholders, wrong);
  Arranger(folder, images, limits, record).Run();
}

}  // namespace equipoise
