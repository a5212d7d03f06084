#include "trainer/checkpoint/checkpoint_pieces.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <numeric>
#include <random>

namespace equipoise {
namespace {

TEST_CASE("pieces as segments of the whole tensor", "[checkpoint][cpu]") {
  const std::vector<int64_t> shape = {2, 3, 4};
  CHECK(Segments({shape, -1, {}, {}}) == std::vector<Segment>{{0, 0, 24}});
  CHECK(Segments({{}, -1, {}, {}}) == std::vector<Segment>{{0, 0, 1}});
  CHECK(Segments({shape, 0, {1, 2}, {}}) == std::vector<Segment>{{12, 0, 12}});
  CHECK(Segments({shape, 1, {1, 3}, {}}) == std::vector<Segment>{{4, 0, 8}, {16, 8, 8}});
  CHECK(Segments({shape, 2, {3, 4}, {{1, 3}, {5, 6}}}) ==
        std::vector<Segment>{{7, 0, 1}, {11, 1, 1}, {23, 2, 1}});
  // A whole dimension is no cut, and runs that touch are one.
  CHECK(Segments({shape, 1, {0, 3}, {{2, 7}, {7, 20}}}) == std::vector<Segment>{{2, 0, 18}});
  CHECK(Segments({{0, 4}, 1, {1, 2}, {}}).empty());
  CHECK(Segments({shape, 1, {2, 2}, {}}).empty());
}

TEST_CASE("two pieces have these elements in common", "[checkpoint][cpu]") {
  const std::vector<int64_t> shape = {4, 6};
  const TensorPiece rows{shape, 0, {1, 3}, {}}, columns{shape, 1, {2, 5}, {}};
  CHECK(CommonRuns(rows, columns) == std::vector<CopyRun>{{2, 3, 3}, {8, 6, 3}});
  CHECK(CommonRuns(columns, rows) == std::vector<CopyRun>{{3, 2, 3}, {6, 8, 3}});
  CHECK(CommonRuns(rows, {shape, 0, {3, 4}, {}}).empty());
}

TEST_CASE("numbers that describe no piece are named", "[checkpoint][cpu]") {
  const std::vector<int64_t> shape = {4, 6};
  const int64_t huge = std::numeric_limits<int64_t>::max();
  CHECK(PieceFault({shape, -1, {}, {}}).empty());
  CHECK(PieceFault({shape, 1, {0, 6}, {{0, 1}, {1, 24}}}).empty());
  CHECK(PieceFault({{-1, 6}, -1, {}, {}}) == "its shape is no shape");
  CHECK(PieceFault({{huge, huge}, -1, {}, {}}) == "its shape is no shape");
  CHECK(PieceFault({{0, huge, huge}, -1, {}, {}}) == "its shape is no shape");
  for (const int dim : {-2, 2, 1000}) {
    CHECK(PieceFault({shape, dim, {0, 1}, {}}) == "its dimension is not one of the tensor");
  }
  for (const Range along : {Range{-1, 2}, Range{3, 2}, Range{0, 7}, Range{0, huge}}) {
    CHECK(PieceFault({shape, 1, along, {}}).find("its range") == 0);
  }
  const std::vector<std::vector<Range>> unordered = {
      {{-1, 2}}, {{0, 0}}, {{0, 4}, {3, 6}}, {{5, 6}, {0, 2}}};
  for (const std::vector<Range>& runs : unordered) {
    CHECK(PieceFault({shape, -1, {}, runs}) == "its runs do not ascend");
  }
  CHECK(PieceFault({shape, 1, {0, 2}, {{0, 9}}}) == "its runs are not within the tensor");
}

TEST_CASE("gaps and overlaps are named", "[checkpoint][cpu]") {
  CHECK(CoverFault({{5, 9}, {0, 5}}, 9).empty());
  CHECK(CoverFault({{0, 5}, {2, 2}, {5, 9}, {9, 9}}, 9).empty());
  CHECK(CoverFault({}, 0).empty());
  CHECK(CoverFault({}, 3) == "elements 0 to 2 are missing");
  CHECK(CoverFault({{0, 4}, {6, 9}}, 9) == "elements 4 to 5 are missing");
  CHECK(CoverFault({{0, 4}}, 9) == "elements 4 to 8 are missing");
  CHECK(CoverFault({{0, 6}, {4, 9}}, 9) == "elements 4 to 5 are there twice");
  CHECK(CoverFault({{0, 9}, {2, 3}}, 9) == "elements 2 to 2 are there twice");
  CHECK(CoverFault({{0, 10}}, 9) == "elements 9 to 9 are there twice");
}

// Random partitions of one tensor among ranks.
class Partitions {
 public:
  explicit Partitions(unsigned seed) : random_(seed) {}

  int64_t Number(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  std::vector<int64_t> Shape() {
    std::vector<int64_t> shape(static_cast<size_t>(Number(1, 4)));
    for (int64_t& size : shape) size = Number(1, 7);
    return shape;
  }
  // Cuts [0, size) into parts, some of which may be empty.
  std::vector<Range> Cut(int64_t size, int64_t parts) {
    std::vector<int64_t> cuts = {0, size};
    for (int64_t i = 1; i < parts; ++i) cuts.push_back(Number(0, size));
    std::sort(cuts.begin(), cuts.end());
    std::vector<Range> ranges;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) ranges.push_back({cuts[i], cuts[i + 1]});
    return ranges;
  }
  // Along a dimension over tensor-parallel ranks, then elements over data ranks in turns.
  std::vector<TensorPiece> Pieces(const std::vector<int64_t>& shape) {
    const int dim = static_cast<int>(Number(-1, static_cast<int64_t>(shape.size()) - 1));
    const int64_t size = dim < 0 ? 1 : shape[static_cast<size_t>(dim)];
    std::vector<TensorPiece> pieces;
    for (const Range& along : Cut(size, dim < 0 ? 1 : Number(1, 4))) {
      TensorPiece part{shape, dim, dim < 0 ? Range{} : along, {}};
      const int64_t ranks = Number(1, 4);
      if (ranks == 1 || PieceSize(part) == 0) {
        pieces.push_back(part);
        continue;
      }
      std::vector<TensorPiece> shards(static_cast<size_t>(ranks), part);
      size_t turn = 0;
      for (const Range& run : Cut(PieceSize(part), Number(1, 12))) {
        if (run.size() > 0) shards[turn++ % shards.size()].runs.push_back(run);
      }
      for (const TensorPiece& shard : shards) {
        if (!shard.runs.empty()) pieces.push_back(shard);
      }
    }
    return pieces;
  }

 private:
  std::mt19937 random_;
};

TEST_CASE("any partition is read from any other", "[checkpoint][cpu]") {
  Partitions make(20240813);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<int64_t> shape = make.Shape();
    const int64_t numel = PieceSize({shape, -1, {}, {}});
    const std::vector<TensorPiece> stored = make.Pieces(shape), wanted = make.Pieces(shape);

    // Every element of the whole tensor is stored once, as its own place.
    std::vector<std::vector<int64_t>> files;
    std::vector<Range> cover;
    for (const TensorPiece& piece : stored) {
      REQUIRE(PieceFault(piece).empty());
      std::vector<int64_t> values(static_cast<size_t>(PieceSize(piece)), -1);
      for (const Segment& s : Segments(piece)) {
        cover.push_back({s.whole, s.whole + s.count});
        std::iota(values.begin() + s.local, values.begin() + s.local + s.count, s.whole);
      }
      files.push_back(values);
    }
    REQUIRE(CoverFault(cover, numel).empty());

    for (const TensorPiece& piece : wanted) {
      std::vector<int64_t> expected(static_cast<size_t>(PieceSize(piece)), -1), found = expected;
      for (const Segment& s : Segments(piece)) {
        std::iota(expected.begin() + s.local, expected.begin() + s.local + s.count, s.whole);
      }
      std::vector<Range> filled;
      for (size_t file = 0; file < stored.size(); ++file) {
        for (const CopyRun& run : CommonRuns(stored[file], piece)) {
          std::copy_n(files[file].begin() + run.from, run.count, found.begin() + run.to);
          filled.push_back({run.to, run.to + run.count});
        }
      }
      REQUIRE(CoverFault(filled, PieceSize(piece)).empty());
      REQUIRE(found == expected);
    }
  }
}

}  // namespace
}  // namespace equipoise
