#include "data/videos/ffmpeg_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "data/videos/video_file.h"

namespace equipoise {
namespace {

constexpr int kBuffer = 1 << 16;
// By FFmpeg's names: MP4 and MOV, Matroska and WebM, AVI. Lists of other files are not among them.
constexpr char kContainers[] = "mov,matroska,avi";

// A file that a container names: nothing but the video itself is opened.
int RefuseFile(AVFormatContext*, AVIOContext**, const char*, int, AVDictionary**) {
  return AVERROR(EACCES);
}

// Pixels for which memory is taken: codecs round both sides up.
int64_t MostCoded(const ImageLimits& limits) { return 2 * limits.pixels + (1 << 16); }

template <class Made>
Made* Required(Made* made) {
  if (made == nullptr) throw std::bad_alloc();
  return made;
}

}  // namespace

std::string FfmpegError(int error) {
  std::array<char, AV_ERROR_MAX_STRING_SIZE> text{};
  av_strerror(error, text.data(), text.size());
  return text.data();
}

void FfmpegDeleter::operator()(AVIOContext* input) const {
  av_freep(&input->buffer);
  avio_context_free(&input);
}

FfmpegInput::FfmpegInput(std::string_view bytes, const ImageLimits& limits)
    : limits_(limits), cursor_{bytes}, packet_(Required(av_packet_alloc())) {
  auto* buffer = static_cast<uint8_t*>(Required(av_malloc(kBuffer)));
  input_.reset(avio_alloc_context(buffer, kBuffer, 0, &cursor_, &ReadBytes, nullptr, &SeekBytes));
  if (input_ == nullptr) av_free(buffer);
  Required(input_.get());
  OpenFormat();
  FindStreams();
  OpenDecoder();
}

int FfmpegInput::ReadBytes(void* cursor, uint8_t* target, int bytes) {
  auto& [all, at] = *static_cast<Cursor*>(cursor);
  const int64_t left = std::max<int64_t>(0, std::ssize(all) - at);
  const int count = static_cast<int>(std::min<int64_t>(left, bytes));
  if (count <= 0) return AVERROR_EOF;
  std::memcpy(target, all.data() + at, static_cast<size_t>(count));
  at += count;
  return count;
}

int64_t FfmpegInput::SeekBytes(void* cursor, int64_t offset, int whence) {
  auto& [all, at] = *static_cast<Cursor*>(cursor);
  if ((whence & AVSEEK_SIZE) != 0) return std::ssize(all);
  whence &= ~AVSEEK_FORCE;
  if (whence == SEEK_CUR) offset += at;
  if (whence == SEEK_END) offset += std::ssize(all);
  if (offset < 0) return AVERROR(EINVAL);
  return at = offset;  // beyond the end nothing is read, as of a file
}

void FfmpegInput::OpenFormat() {
  AVFormatContext* format = Required(avformat_alloc_context());
  format->pb = input_.get();
  format->io_open = RefuseFile;
  format->format_whitelist = av_strdup(kContainers);
  const int opened = avformat_open_input(&format, nullptr, nullptr, nullptr);  // frees it, if not
  if (opened < 0)
    throw ImageError("is no video that is read (MP4, MOV, Matroska, WebM, AVI), or is cut");
  format_.reset(format);
  CheckSizes();
}

void FfmpegInput::CheckSizes() const {
  for (unsigned i = 0; i < format_->nb_streams; ++i) {
    const AVCodecParameters& own = *format_->streams[i]->codecpar;
    if (own.codec_type != AVMEDIA_TYPE_VIDEO || own.width <= 0 || own.height <= 0) continue;
    if (own.height <= limits_.pixels / own.width) continue;
    throw VideoTooLarge(
        fmt::format("{} x {} is more than data.limits.image_pixels", own.width, own.height));
  }
}

void FfmpegInput::FindStreams() {
  // What is decoded here to know the streams has the same limits.
  std::vector<AVDictionary*> options(format_->nb_streams);
  for (AVDictionary*& one : options) {
    av_dict_set_int(&one, "max_pixels", MostCoded(limits_), 0);
    av_dict_set_int(&one, "threads", 1, 0);
  }
  const int found = avformat_find_stream_info(format_.get(), options.data());
  for (AVDictionary*& one : options) av_dict_free(&one);
  if (found < 0) throw ImageError("is a damaged video: " + FfmpegError(found));
  CheckSizes();
  stream_ = av_find_best_stream(format_.get(), AVMEDIA_TYPE_VIDEO, -1, -1, nullptr, /*flags=*/0);
  if (stream_ < 0 || (stream().disposition & AV_DISPOSITION_ATTACHED_PIC) != 0)
    throw ImageError("holds no video");
  const AVCodecID id = stream().codecpar->codec_id;
  codec_ = avcodec_find_decoder(id);
  if (codec_ == nullptr) {
    throw ImageError(
        fmt::format("is a video in {}, which this FFmpeg does not decode; encode it anew",
                    id == AV_CODEC_ID_NONE ? "an unknown form" : avcodec_get_name(id)));
  }
  for (unsigned i = 0; i < format_->nb_streams; ++i) {
    if (static_cast<int>(i) != stream_) format_->streams[i]->discard = AVDISCARD_ALL;
  }
}

void FfmpegInput::OpenDecoder() {
  decoder_.reset(Required(avcodec_alloc_context3(codec_)));
  int done = avcodec_parameters_to_context(decoder_.get(), stream().codecpar);
  decoder_->thread_count = 1;
  decoder_->max_pixels = MostCoded(limits_);
  decoder_->pkt_timebase = stream().time_base;
  // Damaged frames come out and are told by their flags, in place of others in their places.
  decoder_->flags |= AV_CODEC_FLAG_OUTPUT_CORRUPT;
  decoder_->err_recognition = AV_EF_CRCCHECK;
  if (done >= 0) done = avcodec_open2(decoder_.get(), codec_, nullptr);
  if (done < 0) {
    throw ImageError(fmt::format("its {} cannot be decoded: {}", codec_->name, FfmpegError(done)));
  }
}

bool FfmpegInput::has_table() const {
  return std::string_view(format_->iformat->name).starts_with("mov");
}

bool FfmpegInput::Read() {
  do {
    av_packet_unref(packet_.get());
    const int got = av_read_frame(format_.get(), packet_.get());
    if (got == AVERROR_EOF) return false;
    if (got < 0) throw ImageError("is cut or damaged: " + FfmpegError(got));
  } while (packet_->stream_index != stream_);
  if ((packet_->flags & AV_PKT_FLAG_CORRUPT) != 0) throw ImageError("is cut or damaged");
  return true;
}

bool FfmpegInput::Seek(int64_t time) {
  if (av_seek_frame(format_.get(), stream_, time, AVSEEK_FLAG_BACKWARD) < 0) return false;
  avcodec_flush_buffers(decoder_.get());
  return true;
}

}  // namespace equipoise
