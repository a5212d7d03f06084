#include "trainer/commands/asked_questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/file_handle.h"
#include "configs/base/shown_text.h"
#include "data/images/image.h"
#include "data/images/image_processor.h"
#include "data/images/image_size.h"
#include "data/records/path_guard.h"
#include "data/records/refusal.h"
#include "data/records/video_frames.h"
#include "data/text/chat_template.h"
#include "models/families/families.h"

namespace equipoise {
namespace {

ImageLimits ImageLimitsOf(const DataConfig& data) {
  return {data.limits.image_pixels, data.limits.image_bytes};
}

VideoLimits VideoLimitsOf(const DataConfig& data) { return {data.max_frames, ImageLimitsOf(data)}; }

// Reads a file; messages of ImageError contain the path already.
std::string ReadPictureFile(const std::string& path, const ImageLimits& limits) {
  try {
    return ReadImageFile(path, limits);
  } catch (const ImageError& error) {
    throw DataError(error.what());
  }
}

bool ListsFrames(const std::string& video) {
  return video.find(',') != std::string::npos && !std::filesystem::exists(video);
}

// Frames of a list go to the record's pictures.
void AddVideo(const std::string& given, double fps, Record& record) {
  Video video;
  video.fps = fps;
  video.first = record.images.size();
  if (!ListsFrames(given)) {
    video.path = given;
    record.videos.push_back(video);
    return;
  }
  for (size_t begin = 0; begin <= given.size();) {
    const size_t end = std::min(given.find(',', begin), given.size());
    if (begin == end) throw ConfigError("--video: no frame's name between two commas or at an end");
    record.images.push_back(given.substr(begin, end - begin));
    begin = end + 1;
  }
  video.frames = record.images.size() - video.first;
  record.videos.push_back(video);
}

// The record with the frames of its videos, whose paths are relative to the working folder.
Record Arranged(const PromptQuestion& question, const AskedModel& model) {
  for (const std::string& video : question.videos) {
    if (ListsFrames(video) || std::filesystem::exists(video)) continue;
    throw DataError(
        fmt::format("--video: {}: no such folder or file; give a video, a folder of its "
                    "frames, or its frames with commas between them",
                    ShownText(video)));
  }
  ParsedRecord arranged = Guarded([&](Record& record) {
    record = RecordOf(question);
    ArrangeVideos(ImageFolder(".", /*allow_outside=*/true), ImageSpecOf(model.config()),
                  VideoLimitsOf(model.data()), record);
  });
  if (arranged.defect != Defect::kNone) throw DataError("--video: " + arranged.reason);
  return std::move(arranged.record);
}

// The bytes of a record's picture, or why there are none.
std::pair<std::string, std::string> ReadPicture(const ImageFolder& folder, const Record& record,
                                                size_t index, const DataConfig& data) {
  const bool in_video = record.FrameOfFile(index) != nullptr;
  if (in_video || (!record.held.empty() && !record.held[index].empty()))
    return {record.held[index], ""};
  const OpenedImage opened = folder.Open(record.images[index]);
  if (opened.defect != Defect::kNone) return {"", opened.reason};
  const std::string name = ShownText(record.images[index]);
  if (opened.bytes > data.limits.image_bytes)
    return {"", name + ": larger than data.limits.image_bytes"};
  std::string bytes(static_cast<size_t>(opened.bytes), '\0');
  if (ReadFullyAt(opened.file, bytes.data(), bytes.size(), 0) != opened.bytes)
    return {"", name + ": cannot be read"};
  return {std::move(bytes), ""};
}

// Puts the objects of a question in their places. Throws Refusal where its pictures cannot be
// measured.
void PlaceObjects(const ImageFolder& folder, const AskedModel& model, FileQuestion& question) {
  const Record& record = question.record;
  const DataConfig& data = model.data();
  if (record.objects.empty()) return;
  std::vector<ImageSize> sizes;
  std::string name;  // of the picture that is measured
  try {
    for (size_t i = 0; !record.objects.boxes.empty() && i < record.images.size(); ++i) {
      name = ShownText(record.images[i]) + ": ";
      const auto [bytes, fault] = ReadPicture(folder, record, i, data);
      if (!fault.empty()) Refuse(Defect::kImageUnreadable, fault);
      sizes.push_back(ImageSizeOf(bytes, ImageLimitsOf(data)));
    }
    WriteObjects(ImageProcessor(ImageSpecOf(model.config()), data.tiles), sizes, question);
  } catch (const ImageError& error) {
    Refuse(Defect::kImageUnreadable, name + error.what());
  }
}

}  // namespace

Record RecordOf(const PromptQuestion& question) {
  Record record;
  record.turns = {{Role::kUser, question.text}};
  record.images = question.images;
  for (const std::string& video : question.videos) AddVideo(video, question.fps, record);
  // Without a video `<video>` is text.
  std::string fault =
      question.videos.empty() ? std::string() : PlaceVideos(record.turns, question.videos.size());
  if (fault.empty()) fault = PlaceImages(record.turns, question.images.size());
  if (!fault.empty()) throw ConfigError("--prompt: " + fault);
  return record;
}

QuestionList ListOf(const PromptQuestion& question, const AskedModel& model) {
  const Record record = Arranged(question, model);
  std::vector<NamedPicture> pictures;
  for (size_t i = 0; i < record.images.size(); ++i) {
    const std::string& path = record.images[i];
    pictures.push_back({path, record.FrameOfFile(i) != nullptr
                                  ? record.held[i]
                                  : ReadPictureFile(path, ImageLimitsOf(model.data()))});
  }
  QuestionList list;
  list.lengths = {1};
  list.ask = [record, pictures = std::move(pictures), &model](int64_t, bool decode) {
    return model.responder().Ask(record, pictures, decode);
  };
  return list;
}

QuestionList ListOf(std::vector<FileQuestion>& questions, const std::string& folder,
                    const AskedModel& model) {
  constexpr int64_t kFramesOfVideo = 8;  // a guess: files are opened when they are asked about
  struct Asked {
    ImageFolder folder;
    std::vector<std::string> faults;  // of each question; empty: none
  };
  auto asked = std::make_shared<Asked>(Asked{ImageFolder(folder, model.data().allow_outside), {}});
  QuestionList list;
  for (FileQuestion& question : questions) {
    // Pictures outweigh texts, and those of one data set are much alike. By the file alone: a rank
    // that cannot read a picture for a moment has the same batches.
    const Record& record = question.record;
    const int64_t pictures = std::ssize(record.images) + kFramesOfVideo * std::ssize(record.videos);
    list.lengths.push_back(pictures * 4096 + std::ssize(question.question()));
    asked->faults.push_back(
        Guarded([&](Record&) { PlaceObjects(asked->folder, model, question); }).reason);
  }
  list.ask = [asked, &questions, &model](int64_t number, bool decode) {
    const auto place = static_cast<size_t>(number);
    if (!asked->faults[place].empty()) return AskedQuestion{std::nullopt, asked->faults[place]};
    const auto [record, defect, reason] = Guarded([&](Record& arranged) {
      arranged = questions[place].record;
      ArrangeVideos(asked->folder, ImageSpecOf(model.config()), VideoLimitsOf(model.data()),
                    arranged);
    });
    if (defect != Defect::kNone) return AskedQuestion{std::nullopt, reason};
    std::vector<NamedPicture> pictures;
    for (size_t i = 0; i < record.images.size(); ++i) {
      auto [bytes, fault] = ReadPicture(asked->folder, record, i, model.data());
      if (!fault.empty()) return AskedQuestion{std::nullopt, fault};
      pictures.push_back({record.images[i], std::move(bytes)});
    }
    try {
      return model.responder().Ask(record, pictures, decode);
    } catch (const DataError& error) {
      return AskedQuestion{std::nullopt, error.what()};
    }
  };
  return list;
}

}  // namespace equipoise
