#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/shards.h"

namespace equipoise {

// A part of a tensor that is contiguous in a file or in memory: a slice along one dimension (the
// whole tensor where dim is -1), and of its elements, in row-major order, ascending ranges that are
// concatenated (all elements where there are none). Tensor-parallel ranks have slices, ZeRO's
// shards have ranges of elements.
struct TensorPiece {
  std::vector<int64_t> shape;  // shape of the whole tensor
  int dim = -1;
  Range along;
  std::vector<Range> runs;

  bool whole() const { return dim < 0 && runs.empty(); }
  bool operator==(const TensorPiece&) const = default;
};

// What is wrong with a piece whose numbers were read from a file; empty when it is valid, as all
// other functions require.
std::string PieceFault(const TensorPiece& piece);

// The number of elements of a piece.
int64_t PieceSize(const TensorPiece& piece);

// Elements that are contiguous both in the whole tensor and in the piece.
struct Segment {
  int64_t whole = 0;  // index of the first in the whole tensor, in row-major order
  int64_t local = 0;  // index of the first in the piece
  int64_t count = 0;
  bool operator==(const Segment&) const = default;
};
// The segments of a piece, ascending and as few as possible.
std::vector<Segment> Segments(const TensorPiece& piece);

// Elements [from, from + count) of one piece are elements [to, to + count) of another.
struct CopyRun {
  int64_t from = 0, to = 0, count = 0;
  bool operator==(const CopyRun&) const = default;
};
// Elements that two pieces of a tensor have in common, ascending. REQUIRES: equal shapes.
std::vector<CopyRun> CommonRuns(const TensorPiece& from, const TensorPiece& to);

// Checks that ranges, in any order, cover [0, size) exactly once: "elements 3 to 7 are missing" or
// "... are there twice"; empty when they do.
std::string CoverFault(std::vector<Range> ranges, int64_t size);

}  // namespace equipoise
