#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/shards.h"

namespace equipoise {

// A part of a whole tensor that lies together, in a file or in memory: of the tensor a range along
// one dimension (all of it where dim is -1), and of the elements of that, counted row by row,
// ascending ranges that follow each other in the piece (all elements where there are none).
// Tensor-parallel ranks hold ranges of a dimension, ZeRO's shards hold ranges of elements.
struct TensorPiece {
  std::vector<int64_t> shape;  // of the whole tensor
  int dim = -1;
  Range along;
  std::vector<Range> runs;

  bool whole() const { return dim < 0 && runs.empty(); }
  bool operator==(const TensorPiece&) const = default;
};

// The fault of a piece whose numbers may come from anywhere; empty when they describe one. All
// other functions require that.
std::string PieceFault(const TensorPiece& piece);

// Number of elements.
int64_t PieceSize(const TensorPiece& piece);

// Elements that are together both in the whole tensor and in the piece.
struct Segment {
  int64_t whole = 0;  // place in the whole tensor, counted row by row
  int64_t local = 0;  // place in the piece
  int64_t count = 0;
  bool operator==(const Segment&) const = default;
};
// A piece as few segments as can be, ascending.
std::vector<Segment> Segments(const TensorPiece& piece);

// Elements [from, from + count) of one piece are elements [to, to + count) of another.
struct CopyRun {
  int64_t from = 0, to = 0, count = 0;
  bool operator==(const CopyRun&) const = default;
};
// Elements that two pieces of one tensor have in common, ascending. REQUIRES: equal shapes.
std::vector<CopyRun> CommonRuns(const TensorPiece& from, const TensorPiece& to);

// Checks that ranges, in any order, cover [0, size) once: "elements 3 to 7 are missing" or "...
// are there twice"; empty when they do.
std::string CoverFault(std::vector<Range> ranges, int64_t size);

}  // namespace equipoise
