#include "trainer/checkpoint/checkpoint_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

// A piece is reduced to segments, in linear indices of the whole tensor, so that pieces of
// different meshes are compared by merging two sorted lists: O(segments of both).

namespace equipoise {
namespace {

int64_t Product(const std::vector<int64_t>& shape, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t i = begin; i < end; ++i) product *= shape[i];
  return product;
}

// A slice as equally spaced rows, each contiguous in the whole tensor; in elements.
struct Rows {
  int64_t length;  // elements of a row
  int64_t stride;  // between the begins of successive rows in the whole tensor
  int64_t first;   // begin of the first row in the whole tensor
  int64_t count;
};

Rows RowsOf(const TensorPiece& piece) {
  const int64_t all = Product(piece.shape, 0, piece.shape.size());
  if (piece.dim < 0) return {all, all, 0, 1};
  const auto dim = static_cast<size_t>(piece.dim);
  const int64_t inner = Product(piece.shape, dim + 1, piece.shape.size());
  const int64_t outer = Product(piece.shape, 0, dim);
  if (piece.along == Range{0, piece.shape[dim]}) return {all, all, 0, 1};
  return {piece.along.size() * inner, piece.shape[dim] * inner, piece.along.begin * inner, outer};
}

void Append(std::vector<Segment>& segments, const Segment& next) {
  if (next.count == 0) return;
  if (!segments.empty()) {
    Segment& last = segments.back();
    if (last.whole + last.count == next.whole && last.local + last.count == next.local) {
      last.count += next.count;
      return;
    }
  }
  segments.push_back(next);
}

std::string Elements(int64_t begin, int64_t end) {
  return fmt::format("elements {} to {}", begin, end - 1);
}

}  // namespace

std::string PieceFault(const TensorPiece& piece) {
  // Sizes in bytes, at 8 bytes per element, must not overflow either.
  int64_t bytes = 8;
  for (const int64_t size : piece.shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) {
      return "its shape is no shape";
    }
  }
  if (piece.dim < -1 || piece.dim >= static_cast<int>(piece.shape.size())) {
    return "its dimension is not one of the tensor";
  }
  if (piece.dim >= 0) {
    const int64_t size = piece.shape[static_cast<size_t>(piece.dim)];
    if (piece.along.begin < 0 || piece.along.end < piece.along.begin || piece.along.end > size) {
      return "its range along the dimension is not within the tensor";
    }
  }
  const Rows rows = RowsOf(piece);
  int64_t last = 0;
  for (const Range& run : piece.runs) {
    if (run.begin < last || run.end <= run.begin) return "its runs do not ascend";
    last = run.end;
  }
  if (last > rows.length * rows.count) return "its runs are not within the tensor";
  return "";
}

int64_t PieceSize(const TensorPiece& piece) {
  const Rows rows = RowsOf(piece);
  if (piece.runs.empty()) return rows.length * rows.count;
  int64_t size = 0;
  for (const Range& run : piece.runs) size += run.size();
  return size;
}

std::vector<Segment> Segments(const TensorPiece& piece) {
  const Rows rows = RowsOf(piece);
  std::vector<Segment> segments;
  if (rows.length == 0) return segments;
  std::vector<Range> runs = piece.runs;
  if (runs.empty()) runs = {{0, rows.length * rows.count}};
  int64_t local = 0;
  for (const Range& run : runs) {
    for (int64_t at = run.begin; at < run.end;) {
      const int64_t row = at / rows.length;
      const int64_t count = std::min(run.end, (row + 1) * rows.length) - at;
      Append(segments, {rows.first + row * rows.stride + at % rows.length, local, count});
      local += count;
      at += count;
    }
  }
  return segments;
}

std::vector<CopyRun> CommonRuns(const TensorPiece& from, const TensorPiece& to) {
  const std::vector<Segment> a = Segments(from), b = Segments(to);
  std::vector<CopyRun> common;
  for (size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    const int64_t begin = std::max(a[i].whole, b[k].whole);
    const int64_t a_end = a[i].whole + a[i].count, b_end = b[k].whole + b[k].count;
    const int64_t end = std::min(a_end, b_end);
    if (begin < end) {
      common.push_back(
          {a[i].local + begin - a[i].whole, b[k].local + begin - b[k].whole, end - begin});
    }
    if (a_end <= b_end) ++i;
    if (b_end <= a_end) ++k;
  }
  return common;
}

std::string CoverFault(std::vector<Range> ranges, int64_t size) {
  std::erase_if(ranges, [](const Range& range) { return range.size() == 0; });
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  ranges.push_back({size, size});
  int64_t covered = 0;
  for (const Range& range : ranges) {
    if (range.begin > covered) return Elements(covered, range.begin) + " are missing";
    if (range.begin < covered) {
      return Elements(range.begin, std::min(covered, std::max(range.end, range.begin + 1))) +
             " are there twice";
    }
    covered = range.end;
  }
  return "";
}

}  // namespace equipoise
