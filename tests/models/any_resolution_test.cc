// Tiles and tokens of pictures of any resolution. Expected numbers are those of Transformers'
// select_best_resolution and unpad_image.
#include "models/spec/any_resolution.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/skip_case.h"

namespace equipoise {
namespace {

ImageSpec Images(int64_t side, int64_t tokens, std::vector<PatchGrid> resolutions) {
  ImageSpec images;
  images.kind = ImageSpec::Kind::kAnyRes;
  images.tile_size = side;
  images.tokens_per_tile = tokens;
  images.rows_per_tile = tokens + 1;
  images.resolutions = std::move(resolutions);
  return images;
}

ImageSpec Published() { return Images(336, 576, {{1, 2}, {2, 1}, {2, 2}, {3, 1}, {1, 3}}); }

TEST_CASE("a picture has the tiles and tokens that Transformers gives it", "[models][cpu]") {
  struct Row {
    PatchGrid pixels, resolution;
    int64_t top, left;
    PatchGrid kept;
    int64_t tokens;
  };
  for (const Row& row : std::vector<Row>{
           {{480, 640}, {2, 2}, 6, 0, {36, 48}, 2340},
           {{1, 1}, {1, 2}, 0, 12, {24, 24}, 1176},
           {{1000, 300}, {3, 1}, 0, 1, {72, 22}, 2232},
           {{300, 1000}, {1, 3}, 1, 0, {22, 72}, 2182},
           {{337, 335}, {2, 1}, 12, 0, {24, 24}, 1176},
           {{672, 672}, {2, 2}, 0, 0, {48, 48}, 2928},
           {{683, 1024}, {2, 2}, 8, 0, {32, 48}, 2144},
           {{10, 10000}, {1, 3}, 12, 0, {0, 72}, 576},     // nothing is left of so flat a one,
           {{10000, 10}, {3, 1}, 0, 12, {72, 0}, 648}}) {  // and of so narrow a one the vectors
    INFO(row.pixels.rows << " x " << row.pixels.columns);
    const PictureParts parts = PartsOf(Published(), row.pixels);
    CHECK(parts.resolution == row.resolution);
    CHECK(parts.tiles == 1 + row.resolution.patches());
    CHECK(parts.top == row.top);
    CHECK(parts.left == row.left);
    CHECK(parts.kept == row.kept);
    CHECK(parts.tokens == row.tokens);
    const PictureLoad load = Published().LoadOfGrid(row.pixels);
    CHECK(load == PictureLoad{577 * parts.tiles, 577.0 * 577.0 * static_cast<double>(parts.tiles),
                              row.tokens});
    CHECK(std::ssize(TokenRowsOf(Published(), {row.pixels}).rows) == row.tokens);
  }
}

// LLaVA-OneVision's: SigLIP's 27 x 27 patches without a class token, up to 6 x 6 tiles.
ImageSpec Onevision(int64_t max_tiles) {
  ImageSpec images = Images(384, 729, {});
  images.rows_per_tile = 729;
  images.max_tiles = max_tiles;
  images.lone_tiles = true;
  for (int64_t tiles = 0; tiles < 36; ++tiles) {
    images.resolutions.push_back({1 + tiles / 6, 1 + tiles % 6});
  }
  return images;
}

TEST_CASE("many patches are brought down as by LLaVA-OneVision's processor", "[models][cpu]") {
  struct Row {
    PatchGrid pixels, resolution;
    int64_t tokens;
  };
  for (const Row& row : std::vector<Row>{{{480, 640}, {2, 2}, 2929},
                                         {{1, 1}, {1, 1}, 1485},
                                         {{384, 384}, {1, 1}, 1485},
                                         {{1000, 300}, {3, 1}, 2835},
                                         {{768, 1152}, {2, 3}, 5157},
                                         {{1153, 1152}, {4, 3}, 7453},  // the ratio is below 1.1
                                         {{1300, 1250}, {4, 4}, 7289},
                                         {{2304, 2304}, {6, 6}, 7371},
                                         {{2160, 3840}, {4, 6}, 7317},
                                         {{4000, 700}, {6, 2}, 5427},
                                         {{10, 10000}, {1, 6}, 892}}) {
    INFO(row.pixels.rows << " x " << row.pixels.columns);
    const PictureParts parts = PartsOf(Onevision(9), row.pixels);
    CHECK(parts.resolution == row.resolution);
    CHECK(parts.tokens == row.tokens);
    CHECK(std::ssize(TokenRowsOf(Onevision(9), {row.pixels}).rows) == row.tokens);
  }
  // The numbers of tokens of 10,682 sizes, by _get_number_of_features of Transformers, as a hash.
  const auto hash = [](const ImageSpec& images) {
    uint64_t all = 0;
    for (int64_t height = 1; height < 4000; height += 37) {
      for (int64_t width = 1; width < 4000; width += 41) {
        const PictureParts parts = PartsOf(images, {height, width});
        all = all * 1000003 + static_cast<uint64_t>(parts.tokens);
      }
    }
    return all;
  };
  CHECK(hash(Onevision(9)) == 6217633337003929351U);
  CHECK(hash(Onevision(4)) == 1037433415748828612U);
}

TEST_CASE("tokens of what is brought down are sums of four rows", "[models][cpu]") {
  // Three rows of two tiles with two patches a side: 6 x 4, brought down to 4 x 2.
  ImageSpec images = Images(8, 4, {{3, 2}});
  images.max_tiles = 3;
  const PictureParts parts = PartsOf(images, {24, 16});
  CHECK(parts.kept == PatchGrid{6, 4});
  CHECK(parts.shown == PatchGrid{4, 2});
  const TokenRows rows = TokenRowsOf(images, {BlankPicture(1, 4), {24, 16}});
  REQUIRE(rows.blended.size() == 8);
  CHECK(rows.rows.size() == 4 + 4 + 4 * 3);
  CHECK(rows.newlines == std::vector<int64_t>{10, 13, 16, 19});
  CHECK(rows.blended == std::vector<int64_t>{8, 9, 11, 12, 14, 15, 17, 18});
  // The token of row 1 and column 1 lies at (1.75, 2.5): between rows 1 and 2, columns 2 and 3.
  std::vector<int64_t> from;
  std::vector<float> weights;
  for (size_t i = 0; i < 4; ++i) {
    from.push_back(rows.corners[i][3]);
    weights.push_back(rows.weights[i][3]);
    const std::set<int64_t> once(rows.corners[i].begin(), rows.corners[i].end());
    CHECK(once.size() == 8);
  }
  // Rows of five: the blank tile, the whole picture, then tiles two a row.
  CHECK(from == std::vector<int64_t>{5 * 3 + 3, 5 * 3 + 4, 5 * 5 + 1, 5 * 5 + 2});
  CHECK(weights == std::vector<float>{0.125F, 0.125F, 0.375F, 0.375F});
}

TEST_CASE("one of several pictures is a tile with a vector behind it", "[models][cpu]") {
  const ImageSpec images = Images(8, 4, {{1, 2}});
  CHECK(images.LoadOfGrid(OnlySquare(images)) == PictureLoad{5, 25, 5});
  const TokenRows rows = TokenRowsOf(images, {OnlySquare(images), OnlySquare(images)});
  CHECK(rows.rows == std::vector<int64_t>{1, 2, 3, 4, 4, 6, 7, 8, 9, 9});
  CHECK(rows.newlines == std::vector<int64_t>{4, 9});
  CHECK(rows.blended.empty());
}

TEST_CASE("a video's frames are brought down, and one vector stands behind them", "[models][cpu]") {
  // Published: 27 patches a side become 14, as by LlavaOnevisionProcessor's replace_video_token.
  CHECK(Onevision(9).LoadOfGrid(VideoOfFrames(32)) ==
        PictureLoad{32 * 729, 32 * 729.0 * 729, 32 * 196 + 1});
  CHECK(VideoOfFrames(2) == PatchGrid{0, 2});
  // Three patches a side become two; the encoder's rows begin with a class token here.
  const ImageSpec images = Images(12, 9, {{1, 1}});
  const PictureParts parts = PartsOf(images, VideoOfFrames(2));
  CHECK(parts.tiles == 2);
  CHECK(parts.kept == PatchGrid{3, 3});
  CHECK(parts.shown == PatchGrid{2, 2});
  CHECK(parts.tokens == 9);
  const TokenRows rows = TokenRowsOf(images, {OnlySquare(images), VideoOfFrames(2)});
  CHECK(rows.rows.size() == 10 + 9);
  CHECK(rows.newlines == std::vector<int64_t>{9, 18});
  CHECK(rows.blended == std::vector<int64_t>{10, 11, 12, 13, 14, 15, 16, 17});
  // The last token lies at (1.75, 1.75) of the second frame, whose first patch is row 21: between
  // its rows and columns 1 and 2.
  for (size_t i = 0; i < 4; ++i) {
    CHECK(rows.corners[i][7] == 21 + std::vector<int64_t>{4, 5, 7, 8}[i]);
    CHECK(rows.weights[i][7] == std::vector<float>{0.0625F, 0.1875F, 0.1875F, 0.5625F}[i]);
    const std::set<int64_t> once(rows.corners[i].begin(), rows.corners[i].end());
    CHECK(once.size() == 8);
  }
  // A single patch is itself.
  const TokenRows one = TokenRowsOf(Images(4, 1, {{1, 1}}), {VideoOfFrames(1)});
  CHECK(one.corners[0] == std::vector<int64_t>{1});
  CHECK(one.weights[0] == std::vector<float>{1});
  CHECK(one.weights[3] == std::vector<float>{0});
  CHECK_THROWS_AS(VideoOfFrames(0), std::logic_error);
}

TEST_CASE("a picture fits into its resolution", "[models][cpu]") {
  for (int64_t height = 1; height < 3000; height += 97) {
    for (int64_t width = 1; width < 3000; width += 113) {
      const PatchGrid tiles = BestResolution(Published(), {height, width});
      const PatchGrid whole{336 * tiles.rows, 336 * tiles.columns};
      const PatchGrid within = SizeWithin(whole, {height, width});
      CHECK((within.rows == whole.rows || within.columns == whole.columns));
      CHECK((0 < within.rows && within.rows <= whole.rows));
      CHECK((0 < within.columns && within.columns <= whole.columns));
    }
  }
}

TEST_CASE("tokens are the rows of their patches, and vectors stand behind rows of patches",
          "[models][cpu]") {
  // Two patches a side, a class token first. The second picture's two rows and four columns lose
  // their first and last column: a square one, in the middle of a wide resolution.
  const ImageSpec images = Images(8, 4, {{1, 2}});
  const TokenRows both = TokenRowsOf(images, {BlankPicture(2, 5), {8, 8}});
  CHECK(both.rows == std::vector<int64_t>{1, 2, 3, 4, 6,             // blank
                                          11, 12, 13, 14,            // whole picture
                                          17, 21, 21, 19, 23, 23});  // two rows
  CHECK(both.newlines == std::vector<int64_t>{11, 14});
}

TEST_CASE("a blank picture has any load", "[models][cpu]") {
  const ImageSpec images = Images(8, 4, {{1, 2}});
  for (const int64_t tokens : {4, 11, 12, 15}) {
    const TokenRows rows = TokenRowsOf(images, {BlankPicture(3, tokens)});
    CHECK(std::ssize(rows.rows) == tokens);
    CHECK(std::ssize(rows.newlines) == std::max<int64_t>(0, tokens - 12));
    for (const int64_t row : rows.rows) CHECK((row % 5 != 0 && row < 15));  // no class token
    CHECK(images.LoadOfGrid(BlankPicture(3, tokens)) == PictureLoad{15, 75, tokens});
  }
  // What stands for tiles whose pictures are not known.
  CHECK(images.GridsOfTiles(3) == std::vector<PatchGrid>{BlankPicture(3, 12)});
  CHECK(images.GridsOfTiles(0).empty());
  CHECK(images.LoadOfGrid(images.GridsOfTiles(3)[0]) == images.LoadOfTiles(3));
}

TEST_CASE("resolutions and tokens equal the reference's on its list of sizes", "[models][cpu]") {
  const char* fixtures = std::getenv("EQUIPOISE_FIXTURES");
  if (fixtures == nullptr) {
    return testing::SkipCase("no fixtures");
  }
  std::ifstream file(std::string(fixtures) + "/preprocess/grids.json");
  const nlohmann::json rows = nlohmann::json::parse(file).at("rows");
  CHECK(rows.size() == 763);
  for (const nlohmann::json& row : rows) {
    const PatchGrid pixels{row.at("size").at(1), row.at("size").at(0)};
    INFO(pixels.rows << " x " << pixels.columns);
    const PictureParts parts = PartsOf(Published(), pixels);
    CHECK(336 * parts.resolution.columns == row.at("llava_next_resolution").at(0));
    CHECK(336 * parts.resolution.rows == row.at("llava_next_resolution").at(1));
    CHECK(parts.tokens == row.at("llava_next_tokens"));
  }
}

}  // namespace
}  // namespace equipoise
