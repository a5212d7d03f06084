#include "configs/yaml/yaml_writer.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "tests/configs/sample_config.h"

namespace equipoise {
namespace {

SampleConfig ReadBack(const std::string& text) {
  SampleConfig config;
  config.sizes = {7};
  config.train.seed = 9;
  ReadConfigText("written", text, {}, config);
  return config;
}

TEST_CASE("a configuration is written whole, in the order of its fields") {
  SampleConfig config;
  config.sources = {{"a.jsonl", 1.0}, {"b c", 0.25}};
  CHECK(WriteConfig(config) == R"(train:
  steps: 200
  lr: 1e-04
  shuffle: true
  schedule: cosine
  seed: null
sources:
  - path: a.jsonl
    repeat: 1
  - path: "b c"
    repeat: 0.25
freeze: []
sizes: [1, 2]
parallel: auto
)");
}

TEST_CASE("a written configuration reads back as an equal one") {
  SampleConfig config;
  CHECK(EqualConfig(ReadBack(WriteConfig(config)), config));
  config.train.lr = 0.1 + 0.2;
  config.train.seed = std::numeric_limits<int64_t>::max();
  config.parallel.automatic = false;
  config.parallel.timeout = 1e300;
  config.freeze = {"vision", "llm"};
  config.sizes.clear();
  for (const char* text : {"",
                           " ",
                           "null",
                           "~",
                           "true",
                           "No",
                           "12",
                           "1e3",
                           "0x1",
                           ".5",
                           "-",
                           "- a",
                           "a: b",
                           "a #b",
                           "'",
                           "\"",
                           "\\",
                           "a\nb\n",
                           "\t",
                           "\r",
                           "\x01\x7f",
                           "\xc3\xa9 \xe5\x9b\xbe",
                           "*a",
                           "&a",
                           "!a",
                           "%a",
                           "[a]",
                           "{a}",
                           "/abs/p-1_2.x",
                           "../up",
                           "./here",
                           "a,b",
                           "@",
                           "`",
                           "|",
                           ">",
                           "---",
                           "...",
                           "<<"}) {
    config.sources.push_back({text, 0.1});
  }
  const SampleConfig again = ReadBack(WriteConfig(config));
  REQUIRE(again.sources.size() == config.sources.size());
  for (size_t i = 0; i < config.sources.size(); ++i) {
    CHECK(again.sources[i].path == config.sources[i].path);
  }
  CHECK(again.train.lr == config.train.lr);
  CHECK(DifferingKeys(again, config).empty());
  CHECK(WriteConfig(again) == WriteConfig(config));
}

TEST_CASE("differing keys are named") {
  const SampleConfig a;
  SampleConfig b = a;
  CHECK(EqualConfig(a, b));
  b.train.steps = 7;
  b.train.lr = std::nextafter(a.train.lr, 1.0);
  b.train.seed = 0;
  b.freeze = {"llm"};
  b.sizes = {1, 3};
  b.parallel.automatic = false;
  CHECK_FALSE(EqualConfig(a, b));
  CHECK(DifferingKeys(a, b) == std::vector<std::string>{"train.steps", "train.lr", "train.seed",
                                                        "freeze", "sizes.1", "parallel"});
}

TEST_CASE("help names every key with its default, rule and meaning") {
  CHECK(HelpText(SampleConfig{}) == R"(train:                             how it is trained
train.steps: 200                   optimizer steps (at least 1)
train.lr: 1e-04                    highest learning rate (0 to 1)
train.shuffle: true                whether the order is random
train.schedule: cosine             of the learning rate (cosine | linear)
train.seed: null                   of the order (at least 0)
sources: []                        what it is trained on
sources.0.path: ""                 file of records
sources.0.repeat: 1                times it is used (0 to 1000)
freeze: []                         modules that are not trained (vision | llm)
sizes: [1, 2]                      numbers (at least 1)
parallel: auto                     how ranks share the work
parallel.data: null                ranks (at least 1)
parallel.timeout: 600              seconds (at least 1)
)");
}

TEST_CASE("lines of the help end before column 100") {
  struct Wide {
    int64_t value = 1;
    void VisitFields(internal::HelpCollector& visit) {
      std::string help;
      for (int i = 0; i < 40; ++i) help += "word" + std::to_string(i) + " ";
      visit("value", value, help.c_str());
    }
  };
  const std::string text = HelpText(Wide{});
  size_t start = 0, lines = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', start)) {
    CHECK(end - start <= 100);
    start = end + 1;
    ++lines;
  }
  CHECK(lines == 4);
}

}  // namespace
}  // namespace equipoise
