// BMP: no library of Debian reads this format alone, so this is a strict reader of what Pillow
// reads, in Pillow's way: 1, 4, 8 (plain or RLE), 16, 24 and 32 bits. Every read is checked against
// the file's end; cost O(pixels).
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "data/images/image_codec.h"
#include "data/images/image_colours.h"

namespace equipoise {
namespace {

[[noreturn]] void Fail(const char* what) {
  throw ImageError(std::string("BMP cannot be decoded: ") + what);
}

// Bytes of the file, little endian.
class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : bytes_(bytes) {}
  const uint8_t* At(int64_t offset, int64_t count) const {
    const auto size = static_cast<int64_t>(bytes_.size());
    if (offset < 0 || count < 0 || offset > size || count > size - offset) Fail("it is cut");
    return reinterpret_cast<const uint8_t*>(bytes_.data()) + offset;
  }
  int64_t Number(int64_t offset, int64_t count) const {
    const uint8_t* bytes = At(offset, count);
    int64_t value = 0;
    for (int64_t i = count; i-- > 0;) value = value << 8 | bytes[i];
    return value;
  }

 private:
  std::string_view bytes_;
};

// Where the bytes of red, green and blue lie in a pixel of 32 bits.
using Places = std::array<size_t, 3>;

struct Header {
  int64_t bits = 0, compression = 0, colours = 0, palette_bytes = 4, palette_at = 0, pixels_at = 0;
  bool top_down = false;
  bool green_of_6_bits = false;  // of 16-bit pixels
  Places places = {2, 1, 0};
};

constexpr int64_t kPlain = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3;

void ReadMasks(const Bytes& file, int64_t header_bytes, Header& header) {
  const auto mask = [&](int64_t i) { return file.Number(54 + 4 * i, 4); };
  const std::array<int64_t, 3> masks = {mask(0), mask(1), mask(2)};
  if (header_bytes == 40) header.palette_at += 12;
  const auto are = [&](int64_t red, int64_t green, int64_t blue) {
    return masks == std::array<int64_t, 3>{red, green, blue};
  };
  if (header.bits == 16) {
    header.green_of_6_bits = are(0xf800, 0x7e0, 0x1f);
    if (header.green_of_6_bits || are(0x7c00, 0x3e0, 0x1f)) return;
  } else if (header.bits == 24 || header.bits == 32) {
    if (are(0xff0000, 0xff00, 0xff) || (header.bits == 32 && are(0, 0, 0))) return;
    if (header.bits == 32 && are(0xff, 0xff00, 0xff0000)) {
      header.places = {0, 1, 2};
      return;
    }
    if (header.bits == 32 && are(0xff000000, 0xff0000, 0xff00)) {
      header.places = {3, 2, 1};
      return;
    }
    if (header.bits == 32 && are(0xff000000, 0xff00, 0xff)) {
      header.places = {3, 1, 0};
      return;
    }
  }
  Fail("its colours lie in bits in a way that is not read; convert it");
}

Header ReadHeader(const Bytes& file) {
  Header header;
  const int64_t bytes = file.Number(14, 4);
  header.pixels_at = file.Number(10, 4);
  header.palette_at = 14 + bytes;
  if (bytes == 12) {
    header.bits = file.Number(24, 2);
    header.palette_bytes = 3;
  } else {
    header.bits = file.Number(28, 2);
    header.compression = file.Number(30, 4);
    header.colours = file.Number(46, 4);
    header.top_down = file.Number(25, 1) == 0xff;
  }
  if (header.compression == kBitFields) ReadMasks(file, bytes, header);
  if (header.bits > 8) return header;
  if (header.colours == 0) header.colours = int64_t{1} << header.bits;
  if (header.colours > 65536) Fail("its palette is too large");
  const int64_t palette = header.palette_bytes * header.colours;
  if (header.pixels_at == header.palette_at) header.pixels_at += palette;  // some writers forget it
  if (header.pixels_at == 0) header.pixels_at = header.palette_at + palette;
  return header;
}

Palette ReadPalette(const Bytes& file, const Header& header) {
  Palette palette{};
  for (int64_t i = 0; i < std::min<int64_t>(header.colours, 256); ++i) {
    const uint8_t* colour = file.At(header.palette_at + header.palette_bytes * i, 3);
    palette[static_cast<size_t>(i)] = {colour[2], colour[1], colour[0]};
  }
  return palette;
}

// The runs of RLE8 and RLE4, as indices from the file's first row on. Pixels that are jumped over
// have index 0; a picture that ends early is refused, as Pillow does.
class Runs {
 public:
  Runs(const Bytes& file, const Header& header, ImageSize size)
      : file_(file), half_(header.compression == kRle4), at_(header.pixels_at), width_(size.width) {
    indices_.resize(static_cast<size_t>(size.width * size.height));
  }

  std::vector<uint8_t> Read() {
    while (done_ < std::ssize(indices_) && Step()) continue;
    if (done_ < std::ssize(indices_)) Fail("it has fewer pixels than its header says");
    return std::move(indices_);
  }

 private:
  bool Step() {
    const auto count = file_.Number(at_, 1), value = file_.Number(at_ + 1, 1);
    at_ += 2;
    if (count > 0) {
      const int64_t fits = std::clamp<int64_t>(width_ - x_, 0, count);
      for (int64_t i = 0; i < fits; ++i) Put(half_ ? Half(value, i) : value);
      x_ += fits;
      return true;
    }
    if (value == 1) return false;
    if (value == 0) {
      Skip((width_ - done_ % width_) % width_);
      x_ = 0;
    } else if (value == 2) {
      Skip(file_.Number(at_, 1) + file_.Number(at_ + 1, 1) * width_);
      at_ += 2;
      x_ = done_ % width_;
    } else {
      Absolute(value);
    }
    return true;
  }

  void Absolute(int64_t given) {
    const int64_t count = std::min(given, std::ssize(indices_) - done_);
    const int64_t bytes = half_ ? (count + 1) / 2 : count;
    file_.At(at_, bytes);
    for (int64_t i = 0; i < count; ++i)
      Put(half_ ? Half(file_.Number(at_ + i / 2, 1), i) : file_.Number(at_ + i, 1));
    at_ += bytes;
    x_ += given;
    at_ += at_ % 2;  // runs begin at words of the file
  }

  static int64_t Half(int64_t byte, int64_t i) { return i % 2 == 0 ? byte >> 4 : byte & 15; }
  void Put(int64_t index) {
    if (done_ < std::ssize(indices_))
      indices_[static_cast<size_t>(done_++)] = static_cast<uint8_t>(index);
  }
  void Skip(int64_t pixels) { done_ += std::min(pixels, std::ssize(indices_) - done_); }

  const Bytes& file_;
  bool half_;
  int64_t at_, width_, done_ = 0, x_ = 0;
  std::vector<uint8_t> indices_;
};

// Pixels of 5 (or 6) bits a colour, spread over 0 to 255.
void Convert16(const uint8_t* row, int64_t width, bool green_of_6_bits, uint8_t* rgb) {
  const int green = green_of_6_bits ? 6 : 5, most = (1 << green) - 1;
  for (int64_t x = 0; x < width; ++x, rgb += 3) {
    const int pixel = row[2 * x] | row[2 * x + 1] << 8;
    rgb[0] = static_cast<uint8_t>((pixel >> (5 + green) & 31) * 255 / 31);
    rgb[1] = static_cast<uint8_t>((pixel >> 5 & most) * 255 / most);
    rgb[2] = static_cast<uint8_t>((pixel & 31) * 255 / 31);
  }
}

void ConvertBytes(const uint8_t* row, int64_t width, const Header& header, uint8_t* rgb) {
  const int64_t step = header.bits / 8;
  for (int64_t x = 0; x < width; ++x, row += step, rgb += 3) {
    for (size_t channel = 0; channel < 3; ++channel) rgb[channel] = row[header.places[channel]];
  }
}

}  // namespace

void DecodeBmp(std::string_view bytes, ImageSize size, uint8_t* rgb) {
  const Bytes file(bytes);
  const Header header = ReadHeader(file);
  const bool runs = (header.compression == kRle8 && header.bits == 8) ||
                    (header.compression == kRle4 && header.bits == 4);
  const bool plain = header.compression == kPlain || header.compression == kBitFields;
  const bool known = header.bits == 1 || header.bits == 4 || header.bits == 8 ||
                     header.bits == 16 || header.bits == 24 || header.bits == 32;
  if (!known || !(runs || plain)) Fail("it is of a form that is not read; convert it");
  const Palette palette = header.bits <= 8 ? ReadPalette(file, header) : Palette{};
  std::vector<uint8_t> indices;
  if (runs) indices = Runs(file, header, size).Read();
  std::vector<uint8_t> samples(static_cast<size_t>(size.width));
  const int64_t stride = (size.width * header.bits + 31) / 32 * 4;
  // The last row of some files is not filled up.
  const int64_t needed = (size.width * header.bits + 7) / 8;
  for (int64_t i = 0; i < size.height; ++i) {
    uint8_t* out = rgb + 3 * size.width * (header.top_down ? i : size.height - 1 - i);
    const uint8_t* row =
        runs ? indices.data() + i * size.width : file.At(header.pixels_at + i * stride, needed);
    if (header.bits == 16) {
      Convert16(row, size.width, header.green_of_6_bits, out);
    } else if (header.bits > 8) {
      ConvertBytes(row, size.width, header, out);
    } else {
      if (!runs) UnpackSamples(row, static_cast<int>(header.bits), size.width, samples.data());
      const uint8_t* index = runs ? row : samples.data();
      for (int64_t x = 0; x < size.width; ++x)
        std::memcpy(out + 3 * x, palette[index[x]].data(), 3);
    }
  }
}

}  // namespace equipoise
