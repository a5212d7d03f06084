#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "data/images/image_size.h"

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
}

namespace equipoise {

// Frees what FFmpeg's libraries have made.
struct FfmpegDeleter {
  void operator()(AVIOContext* input) const;
  void operator()(AVFormatContext* format) const { avformat_close_input(&format); }
  void operator()(AVCodecContext* decoder) const { avcodec_free_context(&decoder); }
  void operator()(AVFrame* frame) const { av_frame_free(&frame); }
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
  void operator()(SwsContext* scaler) const { sws_freeContext(scaler); }
};
template <class Made>
using FfmpegPtr = std::unique_ptr<Made, FfmpegDeleter>;

// Packets of the video in a file's bytes, and their decoder, from the file's start. Only containers
// of the list in ffmpeg_input.cc are opened, and never another file that they name.
class FfmpegInput {
 public:
  // Throws ImageError; VideoTooLarge for more pixels than the limits.
  FfmpegInput(std::string_view bytes, const ImageLimits& limits);

  // Reads the video's next packet into packet(); false at the end. Throws ImageError.
  bool Read();
  const AVPacket& packet() const { return *packet_; }
  // Seeks to the last packet at `time` or before it that needs none before it; false: it cannot.
  // The decoder begins anew.
  bool Seek(int64_t time);

  const AVStream& stream() const { return *format_->streams[stream_]; }
  AVCodecContext* decoder() { return decoder_.get(); }
  // Whether it is of MP4's family, whose packets stand in a table.
  bool has_table() const;

 private:
  struct Cursor {
    std::string_view bytes;
    int64_t at = 0;
  };
  static int ReadBytes(void* cursor, uint8_t* target, int bytes);
  static int64_t SeekBytes(void* cursor, int64_t offset, int whence);

  void CheckSizes() const;
  void OpenFormat();
  void FindStreams();
  void OpenDecoder();

  ImageLimits limits_;
  Cursor cursor_;
  FfmpegPtr<AVIOContext> input_;
  FfmpegPtr<AVFormatContext> format_;
  FfmpegPtr<AVCodecContext> decoder_;
  FfmpegPtr<AVPacket> packet_;
  const AVCodec* codec_ = nullptr;
  int stream_ = 0;
};

// The text of an error of FFmpeg's libraries.
std::string FfmpegError(int error);

}  // namespace equipoise
