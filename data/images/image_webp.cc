#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <memory>

#include "data/images/image_codec.h"

namespace equipoise {
namespace {

[[noreturn]] void Fail(const char* what) {
  throw ImageError(std::string("WebP cannot be decoded: ") + what);
}

}  // namespace

void DecodeWebp(std::string_view bytes, ImageSize size, uint8_t* rgb) {
  const WebPData data{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  const std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> demuxer(WebPDemux(&data),
                                                                         WebPDemuxDelete);
  if (demuxer == nullptr) Fail("it is cut or damaged");
  if (WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH) != size.width ||
      WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT) != size.height) {
    Fail("its headers disagree about the size");
  }
  WebPIterator frame;
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame) == 0) Fail("it has no frame");
  const std::unique_ptr<WebPIterator, decltype(&WebPDemuxReleaseIterator)> release(
      &frame, WebPDemuxReleaseIterator);
  const int64_t stride = 3 * size.width;
  const bool whole = frame.width == size.width && frame.height == size.height;
  const bool inside = frame.x_offset >= 0 && frame.y_offset >= 0 &&
                      frame.x_offset + frame.width <= size.width &&
                      frame.y_offset + frame.height <= size.height;
  if (!inside || frame.complete == 0) Fail("its first frame is cut or damaged");
  if (!whole) std::fill_n(rgb, stride * size.height, uint8_t{0});
  uint8_t* first = rgb + frame.y_offset * stride + int64_t{3} * frame.x_offset;
  // Of the frame's own rows alone, of which the last may end before the picture's does.
  const auto room = static_cast<size_t>(stride * (frame.height - 1) + int64_t{3} * frame.width);
  int width = 0, height = 0;
  if (WebPGetInfo(frame.fragment.bytes, frame.fragment.size, &width, &height) == 0 ||
      width != frame.width || height != frame.height ||
      WebPDecodeRGBInto(frame.fragment.bytes, frame.fragment.size, first, room,
                        static_cast<int>(stride)) == nullptr) {
    Fail("its first frame is cut or damaged");
  }
}

}  // namespace equipoise
