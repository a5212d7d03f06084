// clang-format off
#include <cstdio>  // jpeglib.h needs FILE and size_t
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <array>
#include <csetjmp>
#include <string>
#include <type_traits>
#include <vector>

#include "data/images/image_codec.h"
#include "data/images/image_colours.h"

namespace equipoise {
namespace {

// libjpeg reports failures by a callback that must not return. This one jumps back into Run(), over
// frames that hold C data only: nothing with a destructor lives between setjmp and longjmp.
struct JpegReader {
  jpeg_error_mgr errors;  // first: libjpeg passes its address to the callbacks
  jpeg_decompress_struct library;
  jpeg_progress_mgr progress;
  std::jmp_buf failed;
  char message[JMSG_LENGTH_MAX];
  ImageSize size;
  uint8_t* rgb;
  uint8_t* cmyk_row;  // 4 * width bytes
};
static_assert(std::is_trivially_destructible_v<JpegReader>);

// Each scan makes the decoder walk over the whole picture, for a few bytes of the file. Encoders
// write 10 to 13 of them; a small picture may have more.
constexpr int64_t kMostScans = 100, kAlwaysScans = 16, kMostScannedPixels = 2'000'000'000;
// Coefficients of a progressive picture, which are all kept: 6 bytes a pixel at most.
constexpr long kMostCoefficientBytes = 640L << 20;

JpegReader* ReaderOf(j_common_ptr library) { return reinterpret_cast<JpegReader*>(library->err); }

[[noreturn]] void FailWith(JpegReader* reader, const char* message) {
  std::snprintf(reader->message, sizeof reader->message, "%s", message);
  std::longjmp(reader->failed, 1);
}

void Fail(j_common_ptr library) {
  JpegReader* reader = ReaderOf(library);
  library->err->format_message(library, reader->message);
  std::longjmp(reader->failed, 1);
}

// libjpeg continues after a warning and fills in grey or noise; here a damaged picture is refused.
// Three warnings are about header fields that do not touch the pixels, and bytes left over before a
// marker, which some cameras write, are behind all that was to be decoded there.
void OnMessage(j_common_ptr library, int level) {
  constexpr std::array<int, 4> kHarmless = {JWRN_ADOBE_XFORM, JWRN_JFIF_MAJOR, JWRN_NOT_SEQUENTIAL,
                                            JWRN_EXTRANEOUS_DATA};
  const int code = library->err->msg_code;
  const bool harmless = std::find(kHarmless.begin(), kHarmless.end(), code) != kHarmless.end();
  if (level < 0 && !harmless) Fail(library);
}

void OnProgress(j_common_ptr library) {
  JpegReader* reader = ReaderOf(library);
  const int64_t pixels = reader->size.width * reader->size.height;
  const int64_t most = std::clamp(kMostScannedPixels / pixels, kAlwaysScans, kMostScans);
  if (reinterpret_cast<j_decompress_ptr>(library)->input_scan_number <= most) return;
  FailWith(reader, "it has more scans than a picture of its size needs");
}

// Reads the picture; on a failure the rest is skipped by longjmp.
void ReadPixels(JpegReader* reader, const uint8_t* bytes, size_t count) {
  jpeg_decompress_struct* library = &reader->library;
  jpeg_mem_src(library, bytes, count);
  jpeg_read_header(library, TRUE);
  if (library->image_width != reader->size.width || library->image_height != reader->size.height) {
    FailWith(reader, "its frame headers disagree about the size");
  }
  const bool has_four_colours = library->num_components == 4;
  library->out_color_space = has_four_colours ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(library);
  while (library->output_scanline < library->output_height) {
    uint8_t* out = reader->rgb + 3 * reader->size.width * int64_t{library->output_scanline};
    uint8_t* row = has_four_colours ? reader->cmyk_row : out;
    jpeg_read_scanlines(library, &row, 1);
    // CMYK JPEGs hold complements (Adobe's convention, which Pillow takes for granted).
    if (has_four_colours) ConvertCmyk(row, reader->size.width, /*complements=*/true, out);
  }
  jpeg_finish_decompress(library);
}

// True when the picture was read; false leaves the reason in `message`.
bool Run(JpegReader* reader, const uint8_t* bytes, size_t count) {
  if (setjmp(reader->failed) != 0) {
    jpeg_destroy_decompress(&reader->library);
    return false;
  }
  reader->library.err = jpeg_std_error(&reader->errors);
  reader->errors.error_exit = Fail;
  reader->errors.emit_message = OnMessage;
  jpeg_create_decompress(&reader->library);
  reader->library.mem->max_memory_to_use = kMostCoefficientBytes;
  reader->progress.progress_monitor = OnProgress;
  reader->library.progress = &reader->progress;
  ReadPixels(reader, bytes, count);
  jpeg_destroy_decompress(&reader->library);
  return true;
}

}  // namespace

void DecodeJpeg(std::string_view bytes, ImageSize size, uint8_t* rgb) {
  std::vector<uint8_t> cmyk_row(static_cast<size_t>(size.width) * 4);
  JpegReader reader{};
  reader.size = size;
  reader.rgb = rgb;
  reader.cmyk_row = cmyk_row.data();
  if (!Run(&reader, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size())) {
    throw ImageError(std::string("JPEG cannot be decoded: ") + reader.message);
  }
}

}  // namespace equipoise
