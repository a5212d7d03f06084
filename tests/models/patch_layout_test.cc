// Pictures as grids of patches: their order, segments, load and positions. What Transformers makes
// of whole models that take them is transformers_oracle_test.
#include "models/families/qwen2_vl/patch_layout.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "models/families/qwen2_vl/position_grid.h"
#include "models/spec/grid_positions.h"

namespace equipoise {
namespace {

using Numbers = std::vector<int64_t>;

ImageSpec Spec(int64_t window) {
  ImageSpec spec;
  spec.kind = ImageSpec::Kind::kNative;
  spec.rows_per_tile = 4;
  spec.tokens_per_tile = 1;
  spec.patch_size = 14;
  spec.merge = spec.frames = 2;
  spec.window = window;
  spec.min_pixels = 28 * 28;
  spec.max_pixels = 28 * 28 * 12;
  return spec;
}

TEST_CASE("learned positions are interpolated to a picture's grid, corners to corners",
          "[models][cpu]") {
  const std::vector<PatchGrid> pictures = {{2, 2}, {2, 6}};
  const PositionGrid grid =
      PositionGridOf(LayoutOf(pictures, Spec(/*window=*/0)), pictures, /*side=*/3);
  REQUIRE(grid.corners[0].size() == 16);
  // The corners of the square, alone.
  for (size_t i = 0; i < 4; ++i) {
    CHECK(grid.corners[0][i] == Numbers{0, 2, 6, 8}[i]);
    CHECK(grid.weights[0][i] == 1);
  }
  // The second patch of six: two fifths from the first position to the second.
  CHECK(grid.corners[0][5] == 0);
  CHECK(grid.corners[1][5] == 1);
  CHECK(grid.weights[0][5] == Approx(0.6F));
  CHECK(grid.weights[1][5] == Approx(0.4F));
  for (size_t i = 0; i < 16; ++i) {
    float sum = 0;
    for (const auto& weights : grid.weights) sum += weights[i];
    CHECK(sum == Approx(1));
  }
}

TEST_CASE("squares are ordered window by window, within a picture", "[models][cpu]") {
  // Three by two squares in windows of two by two, then one square.
  const PatchLayout layout = LayoutOf({{6, 4}, {2, 2}}, Spec(/*window=*/4));
  CHECK(layout.order == Numbers{0, 1, 2, 3, 4, 5, 6});
  CHECK(layout.windows == Numbers{0, 16, 24, 28});
  CHECK(layout.pictures == Numbers{0, 24, 28});
  // Two by three: the window on the right is narrower.
  const PatchLayout wide = LayoutOf({{4, 6}}, Spec(/*window=*/4));
  CHECK(wide.order == Numbers{0, 1, 3, 4, 2, 5});
  CHECK(wide.windows == Numbers{0, 16, 24});
  CHECK(Numbers(wide.rows.begin(), wide.rows.begin() + 12) ==
        Numbers{0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3});
  CHECK(Numbers(wide.columns.begin(), wide.columns.begin() + 12) ==
        Numbers{0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1});
  CHECK(Numbers(wide.columns.begin() + 16, wide.columns.begin() + 20) == Numbers{4, 5, 4, 5});
  const PatchLayout whole = LayoutOf({{4, 6}}, Spec(/*window=*/0));
  CHECK(whole.order.empty());
  CHECK(whole.windows == whole.pictures);
  CHECK(LayoutOf({}, Spec(4)).pictures == Numbers{0});
}

TEST_CASE("a picture's load counts the pairs of its windows", "[models][cpu]") {
  for (const int64_t window : {0, 2, 4, 8}) {
    for (const PatchGrid grid : {PatchGrid{2, 2}, {4, 6}, {6, 4}, {10, 14}, {16, 8}}) {
      INFO(window << ": " << grid.rows << " x " << grid.columns);
      const PatchLayout layout = LayoutOf({grid}, Spec(window));
      double pairs = 0;
      for (size_t i = 1; i < layout.windows.size(); ++i) {
        const auto rows = static_cast<double>(layout.windows[i] - layout.windows[i - 1]);
        pairs += rows * rows;
      }
      const PictureLoad load = Spec(window).LoadOfGrid(grid);
      CHECK(load.window_pairs == (window == 0 ? 0 : pairs));
      CHECK(load.patches == grid.patches());
      CHECK(load.image_tokens == grid.patches() / 4);
      // A video is to the encoder as many pictures as it has times.
      PatchGrid video = grid;
      video.times = 3;
      PictureLoad thrice = load;
      thrice += load;
      thrice += load;
      CHECK(Spec(window).LoadOfGrid(video) == thrice);
    }
  }
}

TEST_CASE("so many tokens are pictures of the largest size, and a rest", "[models][cpu]") {
  const std::vector<PatchGrid> grids = Spec(4).GridsOfTiles(31);
  REQUIRE(grids.size() == 3);
  CHECK(grids[0] == PatchGrid{6, 8});
  CHECK(grids[1] == PatchGrid{6, 8});
  CHECK(grids[2] == PatchGrid{2, 14});
  const PictureLoad load = Spec(4).LoadOfTiles(31);
  CHECK(load.patches == 124);
  CHECK(load.patch_pairs == 2.0 * 48 * 48 + 28.0 * 28);
  CHECK(load.image_tokens == 31);
  CHECK(Spec(4).GridsOfTiles(0).empty());
}

// As get_rope_index of Transformers: text, a picture of two by three tokens, text.
TEST_CASE("positions of a picture's tokens are its place, row and column", "[models][cpu]") {
  Numbers times(11), rows(11), columns(11);
  const std::vector<TokenGrid> pictures = TokenGrids({2}, {{4, 6}}, /*merge=*/2);
  const int64_t next =
      WriteGridPositions(pictures, 11, {times.data(), rows.data(), columns.data()});
  CHECK(times == Numbers{0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7});
  CHECK(rows == Numbers{0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7});
  CHECK(columns == Numbers{0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7});
  CHECK(next == 8);
  Numbers text(11), expected(11);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(WriteGridPositions({}, 11, {text.data(), rows.data(), columns.data()}) == 11);
  CHECK(text == expected);
  CHECK(columns == expected);
  CHECK_THROWS_AS(
      WriteGridPositions({{9, 1, 1, 3}}, 11, {text.data(), rows.data(), columns.data()}),
      std::logic_error);
  CHECK_THROWS_AS(WriteGridPositions({{9, 2, 2}}, 11, {text.data(), rows.data(), columns.data()}),
                  std::logic_error);
}

// Text, a video of three times of one by two tokens that are 2.6 positions apart, text.
TEST_CASE("positions of a video's tokens have its times", "[models][cpu]") {
  Numbers times(10), rows(10), columns(10);
  const std::vector<TokenGrid> videos = TokenGrids({1}, {{2, 4, 3, 2.6F}}, /*merge=*/2);
  const int64_t next = WriteGridPositions(videos, 10, {times.data(), rows.data(), columns.data()});
  CHECK(times == Numbers{0, 1, 1, 3, 3, 6, 6, 7, 8, 9});
  CHECK(rows == Numbers{0, 1, 1, 1, 1, 1, 1, 7, 8, 9});
  CHECK(columns == Numbers{0, 1, 2, 1, 2, 1, 2, 7, 8, 9});
  CHECK(next == 10);
}

}  // namespace
}  // namespace equipoise
