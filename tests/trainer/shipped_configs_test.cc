#include <catch2/catch.hpp>
#include <filesystem>

#include "configs/yaml/yaml_reader.h"
#include "trainer/settings/run_config.h"

namespace equipoise {
namespace {

TEST_CASE("every shipped configuration is read") {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("configs")) {
    if (entry.path().extension() != ".yaml") continue;
    INFO(entry.path());
    RunConfig config;
    CHECK_NOTHROW(ReadConfig(entry.path().string(), {}, config));
    CHECK_FALSE(config.data.train.empty());
    ++count;
  }
  CHECK(count > 0);
}

}  // namespace
}  // namespace equipoise
