// Videos by FFmpeg's libavformat, libavcodec and libswscale. Frames are told by the times of their
// packets, which are all read when a video is opened: a container's own count of them may be an
// estimate. One thread decodes.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "data/videos/ffmpeg_input.h"
#include "data/videos/video_file.h"

extern "C" {
#include <libavutil/display.h>
}

namespace equipoise {
namespace {

constexpr size_t kMostPackets = 10'000'000;  // a day of 100 frames a second
constexpr int64_t kChannels = 3;

// How pixels are placed: (x, y) goes to (x of x * x + x of y * y, ...), each of them -1, 0 or 1.
struct Turn {
  int x_of_x = 1, x_of_y = 0, y_of_x = 0, y_of_y = 1;
  bool swaps() const { return x_of_x == 0; }
};

// The display matrix of the file's head, which players apply; no angle but those of whole quarters.
Turn TurnOf(const AVStream& stream) {
  size_t bytes = 0;
  const uint8_t* data = av_stream_get_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, &bytes);
  if (data == nullptr || bytes < 9 * sizeof(int32_t)) return {};
  int32_t matrix[9];
  std::memcpy(matrix, data, sizeof matrix);
  const auto sign = [&](int i) {
    constexpr int32_t kNone = 1 << 10;  // of 1 << 16
    return matrix[i] > kNone ? 1 : matrix[i] < -kNone ? -1 : 0;
  };
  const Turn turn{sign(0), sign(3), sign(1), sign(4)};
  const bool straight =
      turn.x_of_x != 0 && turn.y_of_y != 0 && turn.x_of_y == 0 && turn.y_of_x == 0;
  const bool quarter = turn.x_of_x == 0 && turn.y_of_y == 0 && turn.x_of_y != 0 && turn.y_of_x != 0;
  if (!straight && !quarter)
    throw ImageError("is turned by an angle that is no multiple of 90 degrees; encode it upright");
  return turn;
}

class FfmpegVideo : public VideoFile {
 public:
  FfmpegVideo(std::string_view bytes, const ImageLimits& limits)
      : bytes_(bytes), limits_(limits), frame_(av_frame_alloc()), rgb_(av_frame_alloc()) {
    if (frame_ == nullptr || rgb_ == nullptr) throw std::bad_alloc();
    input_.emplace(bytes_, limits_);
    ReadPackets();
    SetFacts();
    input_.reset();
  }

  void Decode(int64_t number, uint8_t* rgb) override {
    if (number < 0 || number >= frames_) throw ImageError(fmt::format("has no frame {}", number));
    if (!input_ || number < last_) Restart();
    last_ = number;
    try {
      Reach(number);
    } catch (const ImageError&) {
      // A place that the file says to begin at need not be one.
      if (!sought_) throw;
      seeks_ = false;
      Restart();
      last_ = number;
      Reach(number);
    }
    WriteRgb(rgb);
  }

 private:
  struct Packet {
    int64_t pts, dts;
    bool key;
  };

  void ReadPackets() {
    std::vector<int64_t> times;
    while (input_->Read()) {
      const AVPacket& packet = input_->packet();
      packets_.push_back({packet.pts, packet.dts, (packet.flags & AV_PKT_FLAG_KEY) != 0});
      // An edit list may leave out frames that later ones need.
      if ((packet.flags & AV_PKT_FLAG_DISCARD) == 0) times.push_back(packet.pts);
      if (packets_.size() > kMostPackets) throw ImageError("has too many frames; split it");
    }
    if (input_->has_table() &&
        std::ssize(packets_) < avformat_index_get_entries_count(&input_->stream())) {
      throw ImageError("is cut: its end is missing");
    }
    if (times.empty()) throw ImageError("has no frames");
    frames_ = std::ssize(times);
    std::sort(times.begin(), times.end());
    const bool told =
        times[0] != AV_NOPTS_VALUE && std::adjacent_find(times.begin(), times.end()) == times.end();
    if (told) times_ = std::move(times);
  }

  void SetFacts() {
    const AVStream& stream = input_->stream();
    AVRational rate = stream.avg_frame_rate;
    if (rate.num <= 0 || rate.den <= 0) rate = stream.r_frame_rate;
    if (rate.num > 0 && rate.den > 0) fps_ = av_q2d(rate);
    turn_ = TurnOf(stream);
    coded_ = {stream.codecpar->width, stream.codecpar->height};
    if (coded_.width <= 0 || coded_.height <= 0) throw ImageError("does not tell its size");
    size_ = turn_.swaps() ? ImageSize{coded_.height, coded_.width} : coded_;
  }

  void Restart() {
    input_.emplace(bytes_, limits_);
    fed_ = 0;
    decoded_ = 0;
    sought_ = false;
    current_.reset();
    last_ = -1;
  }

  // Decodes until frame_ is the one shown at the time of frame `number`, or the next that there is:
  // some packets of old WebM files are never shown.
  void Reach(int64_t number) {
    const int64_t wanted = times_.empty() ? number : times_[static_cast<size_t>(number)];
    if (current_ && *current_ >= wanted) return;
    if (!times_.empty() && seeks_) SkipTo(wanted);
    while (Next()) {
      current_ = times_.empty() ? decoded_++ : TimeOfFrame();
      if (*current_ >= wanted) return;
    }
    throw ImageError(fmt::format("frame {} does not decode", number));
  }

  int64_t TimeOfFrame() const {
    return frame_->pts != AV_NOPTS_VALUE ? frame_->pts : frame_->best_effort_timestamp;
  }

  // Leaves out packets that the frame of that time does not need.
  void SkipTo(int64_t time) {
    size_t key = packets_.size();
    while (key > fed_ && (!packets_[key - 1].key || packets_[key - 1].pts > time)) --key;
    if (key <= fed_ + 1) return;  // what is fed next, or was
    const Packet& to = packets_[--key];
    sought_ = true;
    const bool by_dts = input_->has_table() && to.dts != AV_NOPTS_VALUE;
    if (!input_->Seek(by_dts ? to.dts : to.pts) || !input_->Read())
      throw ImageError("cannot be sought in");
    const auto end = packets_.begin() + static_cast<std::ptrdiff_t>(key) + 1;
    const auto found = std::find_if(packets_.begin(), end, [&](const Packet& packet) {
      return packet.pts == input_->packet().pts;
    });
    if (found == end || !found->key) throw ImageError("cannot be sought in");
    fed_ = static_cast<size_t>(found - packets_.begin());
    Feed();
  }

  // Decodes the next frame into frame_; false at the end.
  bool Next() {
    for (;;) {
      const int got = avcodec_receive_frame(input_->decoder(), frame_.get());
      if (got == AVERROR_EOF) return false;
      if (got == 0) {
        if ((frame_->flags & AV_FRAME_FLAG_CORRUPT) != 0 || frame_->decode_error_flags != 0)
          Damaged("a frame is damaged");
        return true;
      }
      if (got != AVERROR(EAGAIN)) Damaged(FfmpegError(got));
      if (input_->Read()) {
        Feed();
      } else {
        avcodec_send_packet(input_->decoder(), nullptr);
      }
    }
  }

  void Feed() {
    const int sent = avcodec_send_packet(input_->decoder(), &input_->packet());
    if (sent < 0) Damaged(FfmpegError(sent));
    ++fed_;
  }

  [[noreturn]] void Damaged(const std::string& what) const {
    throw ImageError(fmt::format("is damaged up to its packet {}: {}", fed_, what));
  }

  // frame_, as libswscale converts it for `ffmpeg VIDEO FRAMES.png`, turned.
  void WriteRgb(uint8_t* rgb) {
    if (frame_->width != coded_.width || frame_->height != coded_.height) {
      throw ImageError(fmt::format("has frames of {} x {} among those of {} x {}; encode it anew",
                                   frame_->width, frame_->height, coded_.width, coded_.height));
    }
    const auto format = static_cast<AVPixelFormat>(frame_->format);
    scaler_.reset(sws_getCachedContext(scaler_.release(), frame_->width, frame_->height, format,
                                       frame_->width, frame_->height, AV_PIX_FMT_RGB24, SWS_BICUBIC,
                                       nullptr, nullptr, nullptr));
    if (scaler_ == nullptr) throw ImageError("has pixels of a form that is not converted");
    SetColours();
    if (rgb_->data[0] == nullptr) {  // rows may be written to beyond their ends
      rgb_->format = AV_PIX_FMT_RGB24;
      rgb_->width = frame_->width;
      rgb_->height = frame_->height;
      if (av_frame_get_buffer(rgb_.get(), 0) < 0) throw std::bad_alloc();
    }
    const int rows = sws_scale(scaler_.get(), frame_->data, frame_->linesize, 0, frame_->height,
                               rgb_->data, rgb_->linesize);
    if (rows != frame_->height) throw ImageError("has a frame that is not converted");
    const int64_t left = turn_.x_of_x + turn_.x_of_y < 0 ? size_.width - 1 : 0;
    const int64_t top = turn_.y_of_x + turn_.y_of_y < 0 ? size_.height - 1 : 0;
    for (int64_t y = 0; y < coded_.height; ++y) {
      const uint8_t* from = rgb_->data[0] + y * rgb_->linesize[0];
      for (int64_t x = 0; x < coded_.width; ++x, from += kChannels) {
        const int64_t column = left + turn_.x_of_x * x + turn_.x_of_y * y;
        const int64_t row = top + turn_.y_of_x * x + turn_.y_of_y * y;
        std::memcpy(rgb + kChannels * (row * size_.width + column), from, kChannels);
      }
    }
  }

  // Tells the scaler how colours are coded, where the frame says so.
  void SetColours() {
    int *from = nullptr, *to = nullptr, from_full = 0, to_full = 0, brightness = 0, contrast = 0,
        saturation = 0;
    if (sws_getColorspaceDetails(scaler_.get(), &from, &from_full, &to, &to_full, &brightness,
                                 &contrast, &saturation) < 0) {
      return;
    }
    if (frame_->color_range != AVCOL_RANGE_UNSPECIFIED)
      from_full = frame_->color_range == AVCOL_RANGE_JPEG ? 1 : 0;
    sws_setColorspaceDetails(scaler_.get(), sws_getCoefficients(frame_->colorspace), from_full, to,
                             to_full, brightness, contrast, saturation);
  }

  std::string_view bytes_;
  ImageLimits limits_;
  std::vector<Packet> packets_;  // as they lie in the file
  std::vector<int64_t> times_;   // of frames, ascending; empty: the file does not tell
  ImageSize coded_;
  Turn turn_;

  std::optional<FfmpegInput> input_;
  FfmpegPtr<AVFrame> frame_, rgb_;
  FfmpegPtr<SwsContext> scaler_;
  size_t fed_ = 0;                  // packets, those that were skipped among them
  int64_t decoded_ = 0, last_ = 0;  // frames; the last that was asked for
  bool seeks_ = true, sought_ = false;
  std::optional<int64_t> current_;  // the time of frame_, or its number
};

std::unique_ptr<VideoFile> Open(std::string_view bytes, const ImageLimits& limits) {
  if (bytes.empty()) throw ImageError("is empty");
  return std::make_unique<FfmpegVideo>(bytes, limits);
}

bool SetUp() {
  av_log_set_level(AV_LOG_QUIET);  // what matters is thrown
  return SetVideoOpener(Open);
}

[[maybe_unused]] const bool is_set_up = SetUp();

}  // namespace
}  // namespace equipoise
