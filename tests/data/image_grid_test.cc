#include "data/images/image_grid.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/skip_case.h"

namespace equipoise {
namespace {

constexpr int64_t kSide = 448;
constexpr std::array<int64_t, 3> kLimits = {4, 6, 12};

struct Row {
  ImageSize size;
  std::array<std::array<int64_t, 2>, 3> grids;  // columns, rows at most 4, 6 and 12 tiles
  std::array<int64_t, 3> tiles;                 // with the thumbnail
};

// Outputs of InternVL's dynamic_preprocess.
const Row kRows[] = {
    {{448, 448}, {{{1, 1}, {1, 1}, {1, 1}}}, {1, 1, 1}},
    {{640, 480}, {{{1, 1}, {3, 2}, {4, 3}}}, {1, 7, 13}},
    {{480, 640}, {{{1, 2}, {2, 3}, {3, 4}}}, {3, 7, 13}},
    {{640, 427}, {{{1, 1}, {3, 2}, {3, 2}}}, {1, 7, 7}},
    {{640, 426}, {{{2, 1}, {3, 2}, {3, 2}}}, {3, 7, 7}},
    {{500, 375}, {{{1, 1}, {3, 2}, {4, 3}}}, {1, 7, 13}},
    {{375, 500}, {{{1, 1}, {2, 3}, {3, 4}}}, {1, 7, 13}},
    {{333, 500}, {{{1, 2}, {2, 3}, {2, 3}}}, {3, 7, 7}},
    {{1024, 768}, {{{2, 2}, {3, 2}, {4, 3}}}, {5, 7, 13}},
    {{768, 1024}, {{{2, 2}, {2, 3}, {3, 4}}}, {5, 7, 13}},
    {{1240, 1754}, {{{1, 2}, {2, 3}, {2, 3}}}, {3, 7, 7}},
    {{1700, 2200}, {{{2, 2}, {2, 3}, {3, 4}}}, {5, 7, 13}},
    {{1920, 1080}, {{{2, 1}, {2, 1}, {4, 2}}}, {3, 3, 9}},
    {{3840, 2160}, {{{2, 1}, {2, 1}, {4, 2}}}, {3, 3, 9}},
    {{800, 600}, {{{2, 2}, {3, 2}, {4, 3}}}, {5, 7, 13}},
    {{896, 448}, {{{2, 1}, {2, 1}, {2, 1}}}, {3, 3, 3}},
    {{1344, 448}, {{{3, 1}, {3, 1}, {3, 1}}}, {4, 4, 4}},
    {{5376, 448}, {{{4, 1}, {6, 1}, {12, 1}}}, {5, 7, 13}},
    {{633, 633}, {{{1, 1}, {1, 1}, {1, 1}}}, {1, 1, 1}},
    {{634, 634}, {{{2, 2}, {2, 2}, {2, 2}}}, {5, 5, 5}},
    {{1097, 1097}, {{{2, 2}, {2, 2}, {3, 3}}}, {5, 5, 10}},
    {{1000, 667}, {{{2, 2}, {3, 2}, {3, 2}}}, {5, 7, 7}},
    {{1000, 666}, {{{2, 1}, {3, 2}, {3, 2}}}, {3, 7, 7}},
    {{100, 10000}, {{{1, 4}, {1, 6}, {1, 12}}}, {5, 7, 13}},
    {{950, 950}, {{{2, 2}, {2, 2}, {2, 2}}}, {5, 5, 5}},
    {{951, 951}, {{{2, 2}, {2, 2}, {3, 3}}}, {5, 5, 10}},
    {{1, 448}, {{{1, 4}, {1, 6}, {1, 12}}}, {5, 7, 13}},
};

TEST_CASE("grids and tiles equal InternVL's", "[data][cpu]") {
  for (const Row& row : kRows) {
    for (size_t i = 0; i < kLimits.size(); ++i) {
      INFO(row.size.width << " x " << row.size.height << ", at most " << kLimits[i]);
      const TileGrid grid = ChooseGrid(row.size, 1, kLimits[i], kSide);
      CHECK(grid.columns == row.grids[i][0]);
      CHECK(grid.rows == row.grids[i][1]);
      CHECK(CountTiles(row.size, {1, kLimits[i], true}, 1, kSide) == row.tiles[i]);
      CHECK(CountTiles(row.size, {1, kLimits[i], false}, 1, kSide) == grid.columns * grid.rows);
    }
  }
}

TEST_CASE("a record's pictures share its tiles", "[data][cpu]") {
  const ImageSize size{1024, 768};
  CHECK(CountTiles(size, {1, 12, true}, 1, kSide) == 13);
  CHECK(CountTiles(size, {1, 12, true}, 2, kSide) == 7);
  CHECK(CountTiles(size, {1, 12, true}, 3, kSide) == 5);
  CHECK(CountTiles(size, {1, 12, true}, 12, kSide) == 1);
  CHECK(CountTiles(size, {1, 12, true}, 100, kSide) == 1);
}

TEST_CASE("more tiles asked for than allowed give one", "[data][cpu]") {
  CHECK(CountTiles({1024, 768}, {3, 2, true}, 1, kSide) == 1);
  CHECK(CountTiles({1024, 768}, {2, 6, true}, 6, kSide) == 1);
}

TEST_CASE("the fewest tiles are kept", "[data][cpu]") {
  for (int64_t side = 1; side < 2000; side += 37) {
    for (const int64_t least : {2, 5, 12}) {
      const TileGrid grid = ChooseGrid({side, 500}, least, 12, kSide);
      CHECK(grid.columns * grid.rows >= least);
      CHECK(grid.columns * grid.rows <= 12);
    }
  }
}

TEST_CASE("grids equal the reference's on its list of sizes", "[data][cpu]") {
  const char* fixtures = std::getenv("EQUIPOISE_FIXTURES");
  if (fixtures == nullptr) {
    return testing::SkipCase("no fixtures");
  }
  std::ifstream file(std::string(fixtures) + "/preprocess/grids.json");
  const nlohmann::json rows = nlohmann::json::parse(file).at("rows");
  CHECK(rows.size() == 763);
  for (const nlohmann::json& row : rows) {
    const ImageSize size{row.at("size").at(0), row.at("size").at(1)};
    int limits = 0;
    for (int64_t most = 1; most <= 64; ++most) {
      const auto found = row.find("internvl" + std::to_string(most));
      if (found == row.end()) continue;
      ++limits;
      const TileGrid grid = ChooseGrid(size, 1, most, kSide);
      INFO(size.width << " x " << size.height << ", at most " << most);
      CHECK(grid.columns == found->at(0));
      CHECK(grid.rows == found->at(1));
    }
    CHECK(limits >= 5);
  }
}

}  // namespace
}  // namespace equipoise
