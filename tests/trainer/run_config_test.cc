#include "trainer/settings/run_config.h"

#include <catch2/catch.hpp>
#include <string>

#include "configs/base/error.h"
#include "configs/yaml/yaml_writer.h"

namespace equipoise {
namespace {

RunConfig Read(const std::string& text, const std::vector<Override>& overrides = {}) {
  RunConfig config;
  ReadConfigText("run.yaml", text, overrides, config);
  return config;
}

constexpr const char* kDocumented = R"(
run:        {dir: runs/quickstart}
model:      {hf: path/to/folder, init: random, freeze: [vision]}
data:
  train:    [{annotations: data/train.jsonl, images: data/images, repeat: 1.0}]
  eval:     []
  template: chatml
  max_tokens: 4096
  tiles:    {min: 1, max: 6, thumbnail: true}
train:      {steps: 200, seed: 0, precision: bf16, global_batch: 16, lr: 1.0e-4,
             warmup: 0.03, clip: 1.0}
parallel:   auto
checkpoint: {every: 50, keep: 3}
)";

TEST_CASE("the documented configuration is read") {
  const RunConfig config = Read(kDocumented);
  CHECK(config.run.dir == "runs/quickstart");
  CHECK(config.model.freeze == std::vector<std::string>{"vision"});
  CHECK(config.data.train.at(0).images == "data/images");
  CHECK(config.data.tiles.max == 6);
  CHECK(config.train.precision == "bf16");
  CHECK(config.train.lr == 1e-4);
  CHECK(config.parallel.automatic);
}

TEST_CASE("a resolved run configuration reads back as an equal one") {
  const RunConfig config =
      Read(kDocumented, {{"parallel.data", "2"}, {"data.train.0.repeat", "2"}});
  CHECK_FALSE(config.parallel.automatic);
  CHECK(config.parallel.data == 2);
  CHECK(config.data.train.at(0).repeat == 2.0);
  CHECK(DifferingKeys(Read(WriteConfig(config)), config).empty());
  CHECK(DifferingKeys(Read(WriteConfig(RunConfig{})), RunConfig{}).empty());
  CHECK(DifferingKeys(config, Read(kDocumented)) ==
        std::vector<std::string>{"data.train.0.repeat", "parallel"});
}

TEST_CASE("numbers that would break a run later are refused") {
  for (const Override& bad : std::vector<Override>{
           {"train.beta1", "1"}, {"train.beta2", "1.0"}, {"parallel.timeout_s", "1e300"}}) {
    INFO(bad.key);
    CHECK_THROWS_AS(Read(kDocumented, {bad}), ConfigError);
  }
}

TEST_CASE("the help of a run names keys of every section with their defaults") {
  const std::string help = HelpText(RunConfig{});
  for (const char* key : {"train.lr: 1e-04", "data.train.0.annotations: \"\"", "parallel: auto",
                          "data.template: auto", "eval.every: 0"}) {
    INFO(key);
    CHECK(help.find(key) != std::string::npos);
  }
}

TEST_CASE("a slip in a run configuration is named with its place") {
  try {
    Read("train:\n  steps: 10\n  warm_up: 0.1\n");
    FAIL("no error");
  } catch (const ConfigError& error) {
    CHECK(std::string(error.what()) ==
          "run.yaml:3:3: train.warm_up: unknown key; did you mean 'train.warmup'?");
  }
}

}  // namespace
}  // namespace equipoise
