#include "tests/data/video_samples.h"

#include <memory>
#include <stdexcept>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>
}

namespace equipoise {
namespace {

int Checked(int result, const char* what) {
  if (result < 0) throw std::runtime_error(std::string(what) + ": " + std::to_string(result));
  return result;
}

template <class Made>
Made* Checked(Made* made, const char* what) {
  if (made == nullptr) throw std::runtime_error(what);
  return made;
}

class Writer {
 public:
  Writer(const std::string& path, const VideoSample& sample) : sample_(sample) {
    Checked(avformat_alloc_output_context2(&format_, nullptr, nullptr, path.c_str()), "container");
    const AVCodec* codec =
        Checked(avcodec_find_encoder_by_name(sample.codec.c_str()), sample.codec.c_str());
    encoder_ = Checked(avcodec_alloc_context3(codec), "encoder");
    encoder_->width = sample.width;
    encoder_->height = sample.height;
    encoder_->time_base = sample.times.empty() ? AVRational{1, sample.fps} : AVRational{1, 1000};
    if (sample.times.empty()) encoder_->framerate = {sample.fps, 1};
    encoder_->gop_size = sample.key_every;
    encoder_->thread_count = 1;
    encoder_->pix_fmt = sample.codec == "ffv1"    ? AV_PIX_FMT_BGR0
                        : sample.codec == "mpeg4" ? AV_PIX_FMT_YUV420P
                                                  : AV_PIX_FMT_RGB24;
    if (sample.codec == "libx264rgb") {
      av_opt_set(encoder_->priv_data, "qp", "0", 0);
      encoder_->max_b_frames = 3;
    }
    if (sample.codec == "mpeg4") {
      encoder_->flags |= AV_CODEC_FLAG_QSCALE;
      encoder_->global_quality = FF_QP2LAMBDA;
    }
    if ((format_->oformat->flags & AVFMT_GLOBALHEADER) != 0)
      encoder_->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    Checked(avcodec_open2(encoder_, codec, nullptr), "open the encoder");
    stream_ = Checked(avformat_new_stream(format_, nullptr), "stream");
    stream_->time_base = encoder_->time_base;
    stream_->avg_frame_rate = encoder_->framerate;
    Checked(avcodec_parameters_from_context(stream_->codecpar, encoder_), "parameters");
    if (sample.clockwise != 0) {
      auto* matrix = reinterpret_cast<int32_t*>(
          av_stream_new_side_data(stream_, AV_PKT_DATA_DISPLAYMATRIX, 9 * sizeof(int32_t)));
      av_display_rotation_set(matrix, sample.clockwise);
    }
    Checked(avio_open(&format_->pb, path.c_str(), AVIO_FLAG_WRITE), path.c_str());
    Checked(avformat_write_header(format_, nullptr), "header");
  }
  ~Writer() {
    av_frame_free(&frame_);
    av_packet_free(&packet_);
    avcodec_free_context(&encoder_);
    sws_freeContext(scaler_);
    if (format_ != nullptr) avio_closep(&format_->pb);
    avformat_free_context(format_);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void Write(const std::vector<uint8_t>& rgb, int64_t time) {
    av_frame_unref(frame_);
    frame_->format = encoder_->pix_fmt;
    frame_->width = sample_.width;
    frame_->height = sample_.height;
    Checked(av_frame_get_buffer(frame_, 0), "buffer");
    scaler_ =
        Checked(sws_getCachedContext(scaler_, sample_.width, sample_.height, AV_PIX_FMT_RGB24,
                                     sample_.width, sample_.height, encoder_->pix_fmt,
                                     SWS_BICUBIC | SWS_ACCURATE_RND, nullptr, nullptr, nullptr),
                "scaler");
    const uint8_t* planes[4] = {rgb.data(), nullptr, nullptr, nullptr};
    const int strides[4] = {3 * sample_.width, 0, 0, 0};
    sws_scale(scaler_, planes, strides, 0, sample_.height, frame_->data, frame_->linesize);
    frame_->pts = time;
    Checked(avcodec_send_frame(encoder_, frame_), "encode");
    TakePackets();
  }
  void Finish() {
    avcodec_send_frame(encoder_, nullptr);
    TakePackets();
    Checked(av_write_trailer(format_), "trailer");
  }

 private:
  void TakePackets() {
    while (avcodec_receive_packet(encoder_, packet_) == 0) {
      if (packet_->duration == 0) packet_->duration = 1;  // else the last one is shown for no time
      av_packet_rescale_ts(packet_, encoder_->time_base, stream_->time_base);
      packet_->stream_index = stream_->index;
      Checked(av_interleaved_write_frame(format_, packet_), "write");
    }
  }

  const VideoSample& sample_;
  AVFormatContext* format_ = nullptr;
  AVCodecContext* encoder_ = nullptr;
  AVStream* stream_ = nullptr;
  AVFrame* frame_ = Checked(av_frame_alloc(), "frame");
  AVPacket* packet_ = Checked(av_packet_alloc(), "packet");
  SwsContext* scaler_ = nullptr;
};

}  // namespace

std::vector<uint8_t> SampleFrame(const VideoSample& sample, int frame) {
  std::vector<uint8_t> rgb;
  for (int y = 0; y < sample.height; ++y) {
    for (int x = 0; x < sample.width; ++x) {
      rgb.push_back(static_cast<uint8_t>(20 * frame + x));
      rgb.push_back(static_cast<uint8_t>(255 - 5 * y));
      rgb.push_back(static_cast<uint8_t>(x * y + frame));
    }
  }
  return rgb;
}

void WriteVideo(const std::string& path, const VideoSample& sample,
                const std::vector<std::vector<uint8_t>>& frames) {
  av_log_set_level(AV_LOG_QUIET);
  Writer writer(path, sample);
  for (size_t i = 0; i < frames.size(); ++i)
    writer.Write(frames[i], sample.times.empty() ? static_cast<int64_t>(i) : sample.times[i]);
  writer.Finish();
}

void WriteVideo(const std::string& path, const VideoSample& sample) {
  std::vector<std::vector<uint8_t>> frames;
  for (int i = 0; i < sample.frames; ++i) frames.push_back(SampleFrame(sample, i));
  WriteVideo(path, sample, frames);
}

}  // namespace equipoise
