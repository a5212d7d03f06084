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
