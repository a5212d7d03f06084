#include "configs/yaml/config_place.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

namespace equipoise {
namespace {

TEST_CASE("a message about a value begins with the value's place") {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/place.yaml";
  std::ofstream(path) << "model:\n  freeze: [vit]\ndata: {tiles: {min: 9}, train: [{repeat: 2}]}\n";
  const auto placed = [&](const std::string& message,
                          const std::vector<std::string>& settings = {}) {
    return WithPlace(message, path, settings);
  };
  CHECK(placed("model.freeze: no module 'vit'") == path + ":2:3: model.freeze: no module 'vit'");
  CHECK(placed("data.tiles.min: 9 is above") == path + ":3:16: data.tiles.min: 9 is above");
  CHECK(placed("model.freeze: x", {"model.freeze=[a]"}) ==
        "--set model.freeze=[a]: model.freeze: x");
  CHECK(placed("data.tiles.min: x", {"data.tiles={min: 3}"}).find("--set data.tiles") == 0);
  CHECK(placed("data.tiles.max: 3 is low") == "data.tiles.max: 3 is low");
  CHECK(placed("data.train.0.repeat: x") == path + ":3:34: data.train.0.repeat: x");
  CHECK(placed("data.train.0.images: x") == path + ":3:33: data.train.0.images: x");
  CHECK(placed("data.train.1.images: x") == "data.train.1.images: x");
  CHECK(placed(path + ": cannot be read") == path + ": cannot be read");
  CHECK(placed("show: there is no sample 9") == "show: there is no sample 9");
  CHECK(WithPlace("model.freeze: x", path + ".none", {}) == "model.freeze: x");
}

}  // namespace
}  // namespace equipoise
