#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "configs/base/vector_clones.h"
#include "data/images/image_codec.h"

// Separable bicubic or bilinear resampling as Pillow's: each output position along an axis is a
// weighted sum of inputs around its centre (a tap). Weights are computed in double precision,
// rounded to fixed point, and summed in 32-bit integers; the result of the first pass is rounded to
// bytes. Results are thus bit-equal to Pillow's on every machine. O(pixels x support) for each
// pass.

namespace equipoise {
namespace {

constexpr int64_t kChannels = 3;
constexpr int kPrecision =
    32 - 8 - 2;  // bits of a weight's fraction: 8 of the value, 2 of headroom

double Bicubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * kA;
  return 0.0;
}

double Triangle(double x) { return std::max(1.0 - std::abs(x), 0.0); }

// A kernel, and half its width.
struct Kernel {
  double (*weight)(double x);
  double support;
};

Kernel KernelOf(ResizeFilter filter) {
  return filter == ResizeFilter::kBilinear ? Kernel{Triangle, 1.0} : Kernel{Bicubic, 2.0};
}

// The inputs of one output position along an axis: first .. first + count - 1, whose weights begin
// at `weight` in Taps::weights.
struct Tap {
  int64_t first, count;
  size_t weight;
};

struct Taps {
  std::vector<Tap> taps;
  std::vector<int32_t> weights;
};

int32_t FixedPoint(double weight) {
  return static_cast<int32_t>(weight * (1 << kPrecision) + (weight < 0 ? -0.5 : 0.5));
}

// Positions along an axis.
struct Range {
  int64_t first, count;
};

// The taps of those outputs of an axis that are wanted, and of no others: the whole axis may be far
// too long for memory, where a thin picture is enlarged and cropped. The kernel is widened by the
// factor of reduction (antialiasing), and its weights sum to one. An axis that keeps its length is
// left as it is: that costs a tap of weight one.
Taps MakeTaps(int64_t from, int64_t to, Range wanted, const Kernel& kernel) {
  const auto count = static_cast<size_t>(wanted.count);
  if (from == to) {
    Taps same{std::vector<Tap>(count), {1 << kPrecision}};
    for (size_t i = 0; i < count; ++i) {
      same.taps[i] = {wanted.first + static_cast<int64_t>(i), 1, 0};
    }
    return same;
  }
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double widening = std::max(scale, 1.0);
  const double support = kernel.support * widening;
  const double narrowing = 1.0 / widening;
  Taps result;
  result.taps.reserve(count);
  result.weights.reserve(static_cast<size_t>(static_cast<double>(count) * (2 * support + 1)));
  std::vector<double> weights;
  for (int64_t i = wanted.first; i < wanted.first + wanted.count; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    // Cut off, not rounded, as Pillow's casts do.
    const auto begins = static_cast<int64_t>(std::trunc(centre - support + 0.5));
    const auto ends = static_cast<int64_t>(std::trunc(centre + support + 0.5));
    const int64_t first = std::max<int64_t>(begins, 0), end = std::min(ends, from);
    weights.clear();
    double sum = 0;
    for (int64_t x = first; x < end; ++x) {
      weights.push_back(kernel.weight((static_cast<double>(x) - centre + 0.5) * narrowing));
      sum += weights.back();
    }
    result.taps.push_back({first, end - first, result.weights.size()});
    for (const double weight : weights)
      result.weights.push_back(FixedPoint(sum != 0 ? weight / sum : weight));
  }
  return result;
}

// The first input that taps need, and the end of those.
int64_t FirstOf(const Taps& taps) { return taps.taps.front().first; }
int64_t EndOf(const Taps& taps) { return taps.taps.back().first + taps.taps.back().count; }

inline uint8_t Clip(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kPrecision, 0, 255));
}

constexpr int32_t kHalf = 1 << (kPrecision - 1);

// The horizontal pass works on this many rows at once, side by side in memory, so that its loops
// are as long as a vector register wants them.
constexpr int64_t kRows = 16;
constexpr int64_t kLanes = kRows * kChannels;

using Bytes = uint8_t __attribute__((vector_size(kRows)));

// Interleaves row i with row i + 8, for each i. That turns the places of all bytes, as numbers of
// eight bits, by one bit: four times exchange row and column.
[[gnu::always_inline]] inline void InterleaveHalves(const Bytes* from, Bytes* to) {
  for (int64_t i = 0; i < kRows / 2; ++i) {
    const Bytes a = from[i], b = from[i + kRows / 2];
    to[2 * i] =
        __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    to[2 * i + 1] =
        __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  }
}

// Transposes a square of kRows x kRows bytes.
[[gnu::always_inline]] inline void Transpose(Bytes* rows) {
  Bytes next[kRows];
  InterleaveHalves(rows, next);
  InterleaveHalves(next, rows);
  InterleaveHalves(rows, next);
  InterleaveHalves(next, rows);
}

// Rearranges `count` (at most kRows) rows, `stride` bytes apart, as [x][channel][row]; the lanes of
// missing rows repeat the last one.
EQUIPOISE_VECTOR
void Interleave(const uint8_t* rows, int64_t stride, int64_t count, int64_t width, uint8_t* lanes) {
  const int64_t row_bytes = width * kChannels;
  std::array<const uint8_t*, kRows> from;
  for (int64_t i = 0; i < kRows; ++i)
    from[static_cast<size_t>(i)] = rows + std::min(i, count - 1) * stride;
  int64_t begin = 0;
  for (; begin + kRows <= row_bytes; begin += kRows) {
    Bytes square[kRows];
    for (size_t i = 0; i < kRows; ++i) std::memcpy(&square[i], from[i] + begin, kRows);
    Transpose(square);
    std::memcpy(lanes + begin * kRows, square, sizeof square);
  }
  for (size_t row = 0; row < kRows; ++row) {
    for (int64_t i = begin; i < row_bytes; ++i)
      lanes[i * kRows + static_cast<int64_t>(row)] = from[row][i];
  }
}

// The order of a row's bytes: of its pixels, or of three planes.
enum class RowOrder { kPixels, kPlanes };

// Where rows go: `count` (at most kRows) of them, `row_bytes` apart.
struct RowPlace {
  uint8_t* rows;
  int64_t count, row_bytes;
};

// Writes rows of `length` lanes that are `step` bytes apart.
EQUIPOISE_VECTOR
void Deinterleave(const uint8_t* lanes, int64_t step, int64_t length, const RowPlace& place) {
  int64_t begin = 0;
  for (; begin + kRows <= length; begin += kRows) {
    Bytes square[kRows];
    for (int64_t i = 0; i < kRows; ++i) std::memcpy(&square[i], lanes + (begin + i) * step, kRows);
    Transpose(square);
    for (int64_t row = 0; row < place.count; ++row)
      std::memcpy(place.rows + row * place.row_bytes + begin, &square[row], kRows);
  }
  for (int64_t row = 0; row < place.count; ++row) {
    uint8_t* rest = place.rows + row * place.row_bytes;
    for (int64_t i = begin; i < length; ++i) rest[i] = lanes[i * step + row];
  }
}

void Deinterleave(const uint8_t* lanes, int64_t width, int64_t count, RowOrder order,
                  uint8_t* rows) {
  const int64_t row_bytes = width * kChannels;
  if (order == RowOrder::kPixels)
    return Deinterleave(lanes, kRows, row_bytes, {rows, count, row_bytes});
  for (int64_t channel = 0; channel < kChannels; ++channel) {
    Deinterleave(lanes + channel * kRows, kLanes, width,
                 {rows + channel * width, count, row_bytes});
  }
}

// Sums that are computed side by side stay in registers. The loops are this long, which fills
// vectors of every width, although only kLanes are of one pixel: others are overwritten, or lie in
// kPadding bytes after the last pixel.
constexpr int64_t kBlock = 64, kPadding = kBlock - kLanes;

// The weighted sum of a block of `count` bytes that are `step` apart.
[[gnu::always_inline]] inline void SumBlock(const uint8_t* from, int64_t step,
                                            const int32_t* weights, int64_t count, uint8_t* to) {
  int32_t sums[kBlock];
  for (int64_t i = 0; i < kBlock; ++i) sums[i] = kHalf;
  for (int64_t k = 0; k < count; ++k, from += step) {
    const int32_t weight = weights[k];
    for (int64_t i = 0; i < kBlock; ++i) sums[i] += from[i] * weight;
  }
  for (int64_t i = 0; i < kBlock; ++i) to[i] = Clip(sums[i]);
}

// `from` begins with column `first` of the picture of the taps. Both end with kPadding.
EQUIPOISE_VECTOR
void ResizeLanes(const uint8_t* from, int64_t first, const Taps& taps, uint8_t* to) {
  for (const Tap& tap : taps.taps) {
    SumBlock(from + (tap.first - first) * kLanes, kLanes, taps.weights.data() + tap.weight,
             tap.count, to);
    to += kLanes;
  }
}

// Computes one output row, the weighted sum of `tap.count` rows from `from` on.
EQUIPOISE_VECTOR
void MixRows(const uint8_t* from, int64_t row_bytes, const Tap& tap, const int32_t* weights,
             uint8_t* to) {
  int64_t start = 0;
  for (; start + kBlock <= row_bytes; start += kBlock)
    SumBlock(from + start, row_bytes, weights, tap.count, to + start);
  if (start == row_bytes) return;
  if (start > 0) {  // the last block reaches back into the one before
    start = row_bytes - kBlock;
    return SumBlock(from + start, row_bytes, weights, tap.count, to + start);
  }
  for (; start < row_bytes; ++start) {
    int32_t sum = kHalf;
    for (int64_t k = 0; k < tap.count; ++k) sum += from[k * row_bytes + start] * weights[k];
    to[start] = Clip(sum);
  }
}

// Rows one after the other in memory.
class MemoryRows {
 public:
  MemoryRows(const uint8_t* rgb, int64_t stride) : rgb_(rgb), stride_(stride) {}

  int64_t stride() const { return stride_; }
  // The row `y` and those after it.
  const uint8_t* At(int64_t y, int64_t /*count*/) { return rgb_ + y * stride_; }

 private:
  const uint8_t* rgb_;
  int64_t stride_;
};

// The rows of a padded picture, which is nowhere whole: as many as are asked for at once.
class PaddedRows {
 public:
  explicit PaddedRows(const PaddedPicture& picture)
      : picture_(picture), padding_(static_cast<size_t>(stride())) {
    for (size_t i = 0; i < padding_.size(); ++i) padding_[i] = picture.colour[i % kChannels];
  }

  int64_t stride() const { return picture_.padded.width * kChannels; }
  // `count` rows from the row `y` on, until the next call.
  const uint8_t* At(int64_t y, int64_t count) {
    const int64_t row_bytes = picture_.size.width * kChannels;
    const int64_t left = (picture_.padded.width - picture_.size.width) / 2 * kChannels;
    const int64_t top = (picture_.padded.height - picture_.size.height) / 2;
    rows_.resize(std::max(rows_.size(), static_cast<size_t>(count * stride())));
    uint8_t* to = rows_.data();
    for (int64_t row = y - top; row < y - top + count; ++row, to += stride()) {
      std::copy(padding_.begin(), padding_.end(), to);
      if (row < 0 || row >= picture_.size.height) continue;
      std::copy_n(picture_.rgb + row * row_bytes, row_bytes, to + left);
    }
    return rows_.data();
  }

 private:
  PaddedPicture picture_;
  std::vector<uint8_t> padding_, rows_;
};

// Resamples the width of a range of rows, to rows without gaps in an order.
template <class Rows>
void ResizeWidth(Rows& rows, Range range, const Taps& taps, RowOrder order, uint8_t* to) {
  const int64_t first = FirstOf(taps), needed = EndOf(taps) - first;
  const auto width = static_cast<int64_t>(taps.taps.size());
  std::vector<uint8_t> lanes(static_cast<size_t>(needed * kLanes + kPadding));
  std::vector<uint8_t> resized(static_cast<size_t>(width * kLanes + kPadding));
  for (int64_t y = 0; y < range.count; y += kRows) {
    const int64_t count = std::min(kRows, range.count - y);
    const uint8_t* from = rows.At(range.first + y, count);
    Interleave(from + first * kChannels, rows.stride(), count, needed, lanes.data());
    ResizeLanes(lanes.data(), first, taps, resized.data());
    Deinterleave(resized.data(), width, count, order, to + y * width * kChannels);
  }
}

// Rounding between the passes makes their order visible. Pillow 13 began to shrink the height first
// where that drops more than twice as many rows as columns; older versions always begin with the
// width.
bool HeightComesFirst(ImageSize from, ImageSize to) {
  return from.height > to.height && from.height - to.height > 2 * (from.width - to.width);
}

struct Sizes {
  ImageSize from, to;
  ResizeFilter filter = ResizeFilter::kBicubic;
};

// Gives the rows of a window of the resampled picture.
template <class Rows, class Give>
void Resize(Rows& from, const Sizes& sizes, const ImageWindow& window, RowOrder order,
            const Give& give) {
  const int64_t to_bytes = window.size.width * kChannels;
  const Kernel kernel = KernelOf(sizes.filter);
  const Taps columns =
      MakeTaps(sizes.from.width, sizes.to.width, {window.left, window.size.width}, kernel);
  const Taps rows =
      MakeTaps(sizes.from.height, sizes.to.height, {window.top, window.size.height}, kernel);
  const auto mix = [&rows](const uint8_t* first, int64_t row_bytes, const Tap& tap, uint8_t* to) {
    MixRows(first, row_bytes, tap, rows.weights.data() + tap.weight, to);
  };
  const int64_t height = window.size.height;
  if (HeightComesFirst(sizes.from, sizes.to)) {
    const int64_t from_bytes = sizes.from.width * kChannels;
    std::vector<uint8_t> middle(static_cast<size_t>(height * from_bytes));
    std::vector<uint8_t> resized(static_cast<size_t>(height * to_bytes));
    for (int64_t y = 0; y < height; ++y) {
      const Tap& tap = rows.taps[static_cast<size_t>(y)];
      mix(from.At(tap.first, tap.count), from.stride(), tap, middle.data() + y * from_bytes);
    }
    MemoryRows lower(middle.data(), from_bytes);
    ResizeWidth(lower, {0, height}, columns, order, resized.data());
    for (int64_t y = 0; y < height; ++y) give(y, resized.data() + y * to_bytes);
    return;
  }
  // Rows that no tap needs are left out.
  const int64_t first = FirstOf(rows), needed = EndOf(rows) - first;
  std::vector<uint8_t> middle(static_cast<size_t>(needed * to_bytes));
  std::vector<uint8_t> row(static_cast<size_t>(to_bytes));
  ResizeWidth(from, {first, needed}, columns, order, middle.data());
  for (int64_t y = 0; y < height; ++y) {
    const Tap& tap = rows.taps[static_cast<size_t>(y)];
    mix(middle.data() + (tap.first - first) * to_bytes, to_bytes, tap, row.data());
    give(y, row.data());
  }
}

}  // namespace

void ResizeBicubicRgb(const uint8_t* from, ImageSize from_size, uint8_t* to, ImageSize to_size) {
  const int64_t row_bytes = to_size.width * kChannels;
  MemoryRows rows(from, from_size.width * kChannels);
  Resize(rows, {from_size, to_size}, {0, 0, to_size}, RowOrder::kPixels,
         [&](int64_t y, const uint8_t* row) { std::copy_n(row, row_bytes, to + y * row_bytes); });
}

void ResizePlanes(const uint8_t* from, ImageSize from_size, ImageSize to_size, ResizeFilter filter,
                  const ImageWindow& window, const GivePlanes& give) {
  MemoryRows rows(from, from_size.width * kChannels);
  Resize(rows, {from_size, to_size, filter}, window, RowOrder::kPlanes, give);
}

void ResizePaddedPlanes(const PaddedPicture& picture, ImageSize to_size, ResizeFilter filter,
                        const ImageWindow& window, const GivePlanes& give) {
  PaddedRows rows(picture);
  Resize(rows, {picture.padded, to_size, filter}, window, RowOrder::kPlanes, give);
}

}  // namespace equipoise
