#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace equipoise {

// How often a word, such as a placeholder, stands in a text.
inline size_t CountOf(std::string_view word, std::string_view text) {
  size_t count = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + word.size()))
    ++count;
  return count;
}

enum class Role { kSystem, kUser, kAssistant };

// One message of a conversation.
struct Turn {
  Role role;
  std::string text;     // in user turns `<image>` marks the place of a picture
  bool trained = true;  // an assistant's turn: false where the record excludes it from training
  bool videos = false;  // a user's turn: `<video>` marks the place of a video
  bool frames = false;  // a user's turn: some of its pictures are a video's frames
};

// A video of a record: frames that were decoded before, or a file.
struct Video {
  std::string path;              // a folder of them, or the file; empty: they are listed
  size_t first = 0, frames = 0;  // their places in Record::images
  // Of these frames; of a file, how many a second are taken. 0: not known, never once it is
  // arranged.
  double fps = 0;
  // Where a video stands in parts, each a Video, in the text: the frames of all its parts.
  size_t whole = 0;
  std::string held = {};  // the file's bytes, where they lie in the record itself (a shard)
};

// A picture that is a frame of a video's file.
struct FileFrame {
  int64_t number = -1;            // from 0; -1: it is no such frame
  int64_t width = 0, height = 0;  // upright
};

// A box in a picture, or a point: x and y of its corners, in order.
struct ObjectBox {
  std::vector<double> numbers;  // 4, or 2
  size_t image = 0;             // the picture, by its place in Record::images
};

// Names and boxes of things in pictures, which texts have `<ref-object>` and `<bbox>` for; of each
// kind as many as there are in all turns, or none, and the placeholders are text
// (record_objects.h).
struct RecordObjects {
  std::vector<std::string> names;
  std::vector<ObjectBox> boxes;
  bool shares = false;  // numbers are shares of the picture's sides, else its pixels

  bool empty() const { return names.empty() && boxes.empty(); }
};

// A conversation and its pictures, whatever form it was read from.
struct Record {
  std::string id;
  // As written: relative to the source's folder. Once videos are arranged (video_frames.h), in the
  // order in which user turns show pictures and videos; before, frames stand behind the pictures.
  std::vector<std::string> images;
  // By picture, the bytes of those that lie in the record itself; empty for those in files. Of the
  // size of `images` where any does, else empty. Of a video's file its bytes, at its first frame.
  std::vector<std::string> held;
  // By picture, once videos are arranged; empty where none is a frame of a video's file.
  std::vector<FileFrame> file_frames;
  // By picture, once videos are arranged: 1 where it is a frame of a video that the model takes as
  // pictures; empty where none is.
  std::vector<uint8_t> is_frame;
  // While a record is parsed: bytes that its file holds beside it, which a picture names by number.
  std::vector<std::string> given;
  std::vector<Video> videos;  // in the order in which user turns show them
  std::vector<Turn> turns;
  RecordObjects objects;  // that are not yet put into the turns
  std::string tools;      // descriptions of functions, JSON, one a line

  // Pictures that are no frames.
  size_t pictures() const {
    size_t count = images.size();
    for (const Video& video : videos) count -= video.frames;
    return count;
  }
  // How many pictures have the record's tiles together with one of `images`. A frame has one tile,
  // however few there are, as in InternVL's code (video_get_item).
  int64_t SharingTiles(size_t image) const {
    if (image < is_frame.size() && is_frame[image] != 0) return int64_t{1} << 20;
    return static_cast<int64_t>(pictures()) -
           std::count(is_frame.begin(), is_frame.end(), uint8_t{1});
  }
  // The frame of a video's file that one of `images` is; null: it is none.
  const FileFrame* FrameOfFile(size_t image) const {
    const bool is_one = image < file_frames.size() && file_frames[image].number >= 0;
    return is_one ? &file_frames[image] : nullptr;
  }
  // The video that one of `images` is a frame of; null: it is a picture.
  const Video* VideoOf(size_t image) const {
    for (const Video& video : videos) {
      if (image >= video.first && image - video.first < video.frames) return &video;
    }
    return nullptr;
  }
};

}  // namespace equipoise
