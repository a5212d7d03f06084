#include "data/records/sample_scanner.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>

#include "configs/base/error.h"
#include "configs/base/file_handle.h"
#include "configs/base/regular_file.h"
#include "configs/base/shown_text.h"
#include "data/images/image_size.h"
#include "data/records/annotation_file.h"
#include "data/records/record_objects.h"
#include "data/records/refusal.h"
#include "data/records/video_frames.h"
#include "data/text/text_error.h"

namespace equipoise {
namespace {

// Most bytes of a reason: it may name a path of any length.
constexpr size_t kMostReason = 400;
// Patches of a sample, as many as SampleSize can count.
constexpr int64_t kMostPatches = std::numeric_limits<int32_t>::max();

void Refuse(ScannedSample& sample, Defect defect, const std::string& reason) {
  sample.defect = defect;
  sample.reason = ShownText(reason, kMostReason);
}

// The bytes of the picture; false when its file cannot be read or has become shorter.
bool ReadWhole(const OpenedImage& opened, std::string& bytes) {
  if (!opened.held.empty()) {
    bytes = opened.held;
    return true;
  }
  bytes.resize(static_cast<size_t>(opened.bytes));
  const ssize_t got = ReadFullyAt(opened.file, bytes.data(), bytes.size(), 0);
  return got == std::ssize(bytes);
}

// The size of a picture by its head: of its file no more is read, unless all `bytes` are wanted.
std::optional<ImageSize> SizeByHead(const OpenedImage& opened, std::string* bytes,
                                    std::string& reason) {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  const ImageLimits no_limits{kAny, kAny};
  if (bytes != nullptr && !ReadWhole(opened, *bytes)) {
    reason = "cannot be read";
    return std::nullopt;
  }
  try {
    if (bytes != nullptr) return ImageSizeOf(*bytes, no_limits);
    if (!opened.held.empty()) return ImageSizeOf(opened.held, no_limits);
    return ReadImageSize(opened.file, opened.bytes, no_limits);
  } catch (const ImageError& error) {
    reason = error.what();
    return std::nullopt;
  }
}

}  // namespace

void RequireListedFiles(const SourceConfig& source) {
  if (source.listed_in.empty()) return;
  constexpr char kFrom[] = "correct it there, or start where its paths lead";
  const OpenedFile records = OpenRegularFile(source.annotations);
  if (!records.problem.empty()) {
    throw DataError(fmt::format("{}: {}: {}; {}", source.listed_in, ShownText(source.annotations),
                                records.problem, kFrom));
  }
  std::error_code error;
  if (std::filesystem::is_directory(source.images, error)) return;
  throw DataError(fmt::format("{}: {}: is no folder of pictures; {}", source.listed_in,
                              ShownText(source.images), kFrom));
}

PictureLoad ScannedSample::all_pictures() const {
  PictureLoad all;
  for (const PictureLoad& picture : pictures) all += picture;
  return all;
}

SampleScanner::SampleScanner(const std::vector<SourceConfig>& sources, SampleOptions options,
                             const ChatTemplate* chat_template)
    : sources_(sources), options_(options), chat_template_(chat_template) {
  for (const SourceConfig& source : sources) {
    RequireListedFiles(source);
    folders_.emplace_back(source.images, options.allow_outside);
    TilesConfig tiles = options.tiles;
    if (source.max_tiles > 0) {
      tiles.max = source.max_tiles;
      tiles.min = std::min(tiles.min, tiles.max);
    }
    processors_.emplace_back(options.images, tiles);
  }
}

ScannedSample SampleScanner::Scan(size_t source, std::string_view text,
                                  std::vector<std::string>* files) const {
  ScannedSample sample;
  sample.source = source;
  if (static_cast<int64_t>(text.size()) > options_.limits.record_bytes) {
    Refuse(sample, Defect::kLineTooLong, "the record is longer than data.limits.record_bytes");
    return sample;
  }
  ParsedRecord parsed = ParseRecordIn(sources_[source], text);
  sample.record = std::move(parsed.record);
  if (parsed.defect != Defect::kNone) Refuse(sample, parsed.defect, parsed.reason);
  const auto step = [&sample](const auto& run) {
    if (sample.defect != Defect::kNone) return;
    try {
      run();
    } catch (const Refusal& refusal) {
      Refuse(sample, refusal.defect, refusal.reason);
    }
  };
  std::vector<ImageSize> sizes;
  step([&] {
    const ImageLimits limits{options_.limits.image_pixels, options_.limits.image_bytes};
    ArrangeVideos(folders_[source], options_.images, {options_.max_frames, limits}, sample.record);
  });
  step([&] { ReadPictures(source, sample, sizes, files); });
  step([&] { WriteObjects(processors_[source], sizes, sample.record); });
  step([&] { Encode(sample); });
  return sample;
}

OpenedImage SampleScanner::Open(size_t source, const Record& record, size_t index) const {
  if (record.held.empty() || record.held[index].empty())
    return folders_[source].Open(record.images[index]);
  OpenedImage opened;
  opened.held = record.held[index];
  opened.bytes = std::ssize(opened.held);
  return opened;
}

void SampleScanner::ReadPictures(size_t source, ScannedSample& sample,
                                 std::vector<ImageSize>& sizes,
                                 std::vector<std::string>* files) const {
  const auto& images = sample.record.images;
  if (!images.empty() && !options_.images.takes_pictures()) {
    return Refuse(sample, Defect::kNoVision, "the model takes no pictures");
  }
  // A record that cannot fit is refused before its files are touched.
  const auto pictures = static_cast<int64_t>(images.size());
  const ImageProcessor& processor = processors_[source];
  int64_t least = static_cast<int64_t>(sample.record.pictures()) * processor.least_tokens();
  for (const Video& video : sample.record.videos) least += processor.LeastTokens(video);
  if (least > options_.max_tokens) {
    return RefuseLong(sample, fmt::format("{} pictures do not fit in data.max_tokens", pictures));
  }
  ImageSize first;  // frame of a video
  for (size_t i = 0; i < images.size(); ++i) {
    const std::string& path = images[i];
    std::string bytes, reason;
    std::optional<ImageSize> size;
    if (const FileFrame* frame = sample.record.FrameOfFile(i)) {  // its head is known
      size = {frame->width, frame->height};
      if (files != nullptr) bytes = sample.record.held[i];
    } else {
      const OpenedImage opened = Open(source, sample.record, i);
      if (opened.defect != Defect::kNone) return Refuse(sample, opened.defect, opened.reason);
      if (opened.bytes > options_.limits.image_bytes) {
        return Refuse(sample, Defect::kImageTooLarge,
                      ShownText(path) + ": larger than data.limits.image_bytes");
      }
      size = SizeByHead(opened, files != nullptr ? &bytes : nullptr, reason);
    }
    if (!size) return Refuse(sample, Defect::kImageUnreadable, ShownText(path) + ": " + reason);
    if (size->height != 0 && size->width > options_.limits.image_pixels / size->height) {
      return Refuse(sample, Defect::kImageTooLarge,
                    fmt::format("{}: {} x {} is more than data.limits.image_pixels",
                                ShownText(path), size->width, size->height));
    }
    const Video* video = sample.record.VideoOf(i);
    const bool later = video != nullptr && i > video->first;
    if (later && (size->width != first.width || size->height != first.height)) {
      return Refuse(
          sample, Defect::kImageUnreadable,
          fmt::format("{}: {} x {}, and the video's first frame {} x {}; write its "
                      "frames in one size",
                      ShownText(path), size->width, size->height, first.width, first.height));
    }
    try {
      if (!later) AddPicture(source, *size, i, sample);
      first = *size;
    } catch (const ImageError& error) {
      return Refuse(sample, Defect::kImageUnreadable, ShownText(path) + ": " + error.what());
    }
    sizes.push_back(*size);
    if (files != nullptr) files->push_back(std::move(bytes));
  }
  const PictureLoad all = sample.all_pictures();
  if (all.patches > kMostPatches || all.image_tokens > options_.max_tokens) {
    RefuseLong(sample, fmt::format("{} tokens of pictures do not fit in data.max_tokens",
                                   all.image_tokens));
  }
}

void SampleScanner::AddPicture(size_t source, ImageSize size, size_t image,
                               ScannedSample& sample) const {
  const ImageProcessor& processor = processors_[source];
  const int64_t pictures = sample.record.SharingTiles(image);
  if (const Video* video = sample.record.VideoOf(image)) {
    sample.grids.push_back(processor.GridOf(size, *video));
    sample.pictures.push_back(options_.images.LoadOfGrid(sample.grids.back()));
    return;
  }
  sample.pictures.push_back(processor.Measure(size, pictures));
  if (options_.images.lists_grids()) sample.grids.push_back(processor.GridOf(size, pictures));
}

void SampleScanner::Encode(ScannedSample& sample) const {
  EncodedConversation& encoded = sample.encoded;
  std::vector<int64_t> image_tokens;
  for (const PictureLoad& picture : sample.pictures) image_tokens.push_back(picture.image_tokens);
  if (!sample.record.tools.empty() && !chat_template_->takes_tools()) {
    return Refuse(sample, Defect::kBadField,
                  "'tools' is given, for which this data.template has no place; use chatml, "
                  "qwen2_5, qwen3 or qwen3_no_thinking, or describe the functions in the system "
                  "text");
  }
  try {
    encoded = chat_template_->Encode(sample.record.turns, image_tokens,
                                     /*with_answer_prompt=*/false, sample.record.tools);
  } catch (const TextError& error) {
    return Refuse(sample, Defect::kTokenizer, error.what());
  }
  sample.full_tokens = std::ssize(encoded.ids);
  if (options_.drop_longer && sample.full_tokens > options_.max_tokens) {
    return RefuseLong(sample, fmt::format("{} tokens are more than data.max_tokens {}",
                                          sample.full_tokens, options_.max_tokens));
  }
  const std::string wrong = Truncate(encoded, options_.max_tokens);
  if (!wrong.empty()) return RefuseLong(sample, wrong);
  for (size_t i = 1; i < encoded.trained.size(); ++i)
    sample.trained += encoded.trained[i] != 0 ? 1 : 0;
  if (sample.trained == 0) {
    Refuse(sample, Defect::kNothingTrained,
           sample.full_tokens > options_.max_tokens ? "no answer is left within data.max_tokens"
                                                    : "no answer in it is trained");
  }
}

void SampleScanner::RefuseLong(ScannedSample& sample, const std::string& reason) const {
  Refuse(sample, options_.drop_longer ? Defect::kTooLong : Defect::kTooManyTokens, reason);
}

}  // namespace equipoise
