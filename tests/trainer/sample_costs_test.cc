#include "trainer/planner/sample_costs.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <utility>

#include "configs/base/error.h"
#include "data/index/cost_index_open.h"
#include "data/text/chat_template.h"
#include "models/families/families.h"
#include "models/families/presets.h"
#include "tests/data/tiny_tokenizer.h"
#include "tests/trainer/scratch_folder.h"
#include "trainer/settings/data_options.h"

namespace equipoise {
namespace {

SampleCosts Gather(const std::string& costs) {
  RunConfig config;
  config.data.costs = costs;
  return GatherSampleCosts(config, PresetConfig("internvl2-26b"));
}

std::vector<SampleSize> SizesOf(const SampleCosts& costs) {
  std::vector<SampleSize> sizes;
  for (int64_t i = 0; i < costs.list.size; ++i) sizes.push_back(costs.list.size_at(i).value());
  CHECK(costs.usable == std::ssize(sizes));
  return sizes;
}

std::string ErrorOf(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  try {
    Gather(path);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("costs come from a histogram by its name", "[sample_costs][cpu]") {
  const SampleCosts costs = Gather("internvl12m");
  CHECK(costs.source == "histogram internvl12m");
  REQUIRE(costs.usable == 1'267'819);
  double tiles = 0, tokens = 0;
  for (const SampleSize& size : SizesOf(costs)) {
    tiles += size.patches / 1025.0;
    tokens += size.tokens;
  }
  CHECK(tiles / 1'267'819 == Approx(2.006).margin(0.001));
  CHECK(tokens / 1'267'819 == Approx(757.3).margin(0.1));
}

TEST_CASE("a histogram may tell what share of the tokens has a loss", "[sample_costs][cpu]") {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/few.json";
  const auto written = [&](const std::string& share) {
    std::ofstream(path) << "{" << share << "\"rows\": [[2, 600, 3], [0, 2, 1]]}";
    return SizesOf(Gather(path));
  };
  CHECK(written("").front().targets == 600);
  const std::vector<SampleSize> few = written("\"target_share\": 0.2, ");
  REQUIRE(few.size() == 4);
  CHECK(few.front().targets == 120);
  CHECK(few.back().targets == 1);  // a sample without any would not be trained on
  CHECK_THROWS_WITH(written("\"target_share\": 0, "), Catch::Contains("target_share is 0"));
  CHECK_THROWS_WITH(written("\"target_share\": 1.5, "), Catch::Contains("target_share is 1.5"));
}

TEST_CASE("a histogram is found from any folder, and an unknown one is refused",
          "[sample_costs][cpu]") {
  const ScratchFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const int64_t usable = Gather("internvl12m").usable;
  std::filesystem::current_path(before);
  CHECK(usable == 1'267'819);
  CHECK_THROWS_WITH(Gather("internvl13m"),
                    Catch::Contains("no file internvl13m") && Catch::Contains("internvl12m"));
}

TEST_CASE("costs come from lines of JSON", "[sample_costs][cpu]") {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/costs.jsonl";
  std::ofstream(path) << "{\"vit_num\": 3, \"token_num\": 850}\n"
                      << "{\"token_num\": 20, \"vit_num\": 0, \"image_flags\": 0}\n";
  const SampleCosts costs = Gather(path);
  CHECK(costs.source == path);
  const std::vector<SampleSize> sizes = SizesOf(costs);
  REQUIRE(sizes.size() == 2);
  CHECK(sizes[0].patches == 3 * 1025);
  CHECK(sizes[0].tokens == 850);
  CHECK(sizes[1].patches == 0);
}

TEST_CASE("costs that are none are refused with their line", "[sample_costs][cpu]") {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/costs.jsonl";
  const std::string good = "{\"vit_num\": 3, \"token_num\": 850}\n";
  CHECK(ErrorOf(path, good + "{\"vit_num\": 3}\n").find(path + ":2: ") == 0);
  CHECK(ErrorOf(path, good + "{\"vit_num\": 3, \"token_num\": 0}\n").find(path + ":2: ") == 0);
  CHECK(ErrorOf(path, good + "{\"vit_num\": -1, \"token_num\": 5}\n").find(path + ":2: ") == 0);
  CHECK(ErrorOf(path, good + good + "nonsense\n").find(path + ":3:") == 0);
  CHECK(ErrorOf(path, "").find(path) == 0);
}

// A source of `count` records whose answers have so many letters.
SourceConfig Records(const ScratchFolder& folder, const std::string& name, int count, int letters) {
  SourceConfig source;
  source.annotations = folder.Path(name);
  source.images = folder.path();
  std::ofstream file(source.annotations);
  for (int i = 0; i < count; ++i) {
    file << R"({"conversations":[{"from":"human","value":"?"},{"from":"gpt","value":")"
         << std::string(static_cast<size_t>(letters), 'x') << "\"}]}\n";
  }
  return source;
}

TEST_CASE("some records stand for all, each source with its share", "[sample_costs][cpu]") {
  const ScratchFolder folder;
  WriteText(folder.Path("tokenizer.json"), TinyTokenizerJson().dump());
  RunConfig config;
  config.run.dir = folder.Path("run");
  config.data.tokenizer = folder.path();
  config.data.chat_template = "chatml";
  const auto gathered = [&](std::vector<SourceConfig> sources) {
    config.data.train = std::move(sources);
    return GatherSampleCosts(config, PresetConfig("internvl2-26b"));
  };
  std::vector<SourceConfig> two = {Records(folder, "short.jsonl", 400, 9),
                                   Records(folder, "long.jsonl", 100, 300)};
  two[1].repeat = 2;
  const SampleCosts mixed = gathered(two);
  CHECK(mixed.epoch_samples() == 600);
  CHECK(mixed.source.find("500 records of data.train") == 0);
  const std::vector<SampleSize> sizes = SizesOf(mixed);
  const auto is_long = [](const SampleSize& size) { return size.tokens > 200; };
  CHECK(static_cast<double>(std::count_if(sizes.begin(), sizes.end(), is_long)) /
            static_cast<double>(sizes.size()) ==
        Approx(1 / 3.0).margin(0.01));
  // Of more than are read, their bytes tell how many there are.
  const SampleCosts part = gathered({Records(folder, "many.jsonl", 20'000, 9)});
  CHECK(part.usable < 2'100);
  CHECK(static_cast<double>(part.epoch_samples()) == Approx(20'000).epsilon(0.01));
}

TEST_CASE("records that all have a defect are told with it", "[sample_costs][cpu]") {
  const ScratchFolder folder;
  WriteText(folder.Path("tokenizer.json"), TinyTokenizerJson().dump());
  RunConfig config;
  config.run.dir = folder.Path("run");
  config.data.tokenizer = folder.path();
  config.data.chat_template = "chatml";
  config.data.train = {Records(folder, "all.jsonl", 3, 9)};
  WriteText(config.data.train[0].annotations, "{}\n{}\n[\n");
  CHECK_THROWS_WITH(GatherSampleCosts(config, PresetConfig("internvl2-26b")),
                    Catch::Matchers::StartsWith(folder.Path("all.jsonl") +
                                                ": none of 3 records that were read") &&
                        Catch::Contains("bad_json 1") && Catch::Contains("bad_field 2") &&
                        Catch::Contains("such as: ") && Catch::Contains("data CONFIG check"));
}

TEST_CASE("an epoch without a sample is refused by its repeats", "[sample_costs][cpu]") {
  const ScratchFolder folder;
  WriteText(folder.Path("tokenizer.json"), TinyTokenizerJson().dump());
  RunConfig config;
  config.run.dir = folder.Path("run");
  config.data.tokenizer = folder.path();
  config.data.chat_template = "chatml";
  config.data.train = {Records(folder, "some.jsonl", 3, 9), Records(folder, "bad.jsonl", 3, 9)};
  WriteText(config.data.train[1].annotations, "{}\n");  // whose share of an epoch is empty anyway
  config.data.train[0].repeat = 0;
  config.data.max_bad_share = 1;
  const ModelConfig model = PresetConfig("internvl2-26b");
  const auto refusal = Catch::Contains("data.train: `repeat` of the sources leaves no sample");
  for (const double of_bad : {1.0, 0.0}) {
    config.data.train[1].repeat = of_bad;
    CHECK_THROWS_WITH(GatherSampleCosts(config, model), refusal);
  }
  const Tokenizer tokenizer = ReadTokenizer(config, model);
  const ChatTemplate chat_template(config.data.chat_template, config.data.system, &tokenizer);
  CostIndexOptions build;
  build.images = ImageSpecOf(model);
  OpenCostIndex(config.data.train, config.data, chat_template, build);
  CHECK_THROWS_WITH(GatherSampleCosts(config, model), refusal);
  config.data.train[0].repeat = 1;
  CHECK(GatherSampleCosts(config, model).source.find("cost index ") == 0);
}

TEST_CASE("without any costs the way out is told", "[sample_costs][cpu]") {
  CHECK_THROWS_WITH(Gather(""), Catch::Contains("data.train: is empty"));
  CHECK_THROWS_WITH(Gather("nothing"),
                    Catch::Contains("there is no file nothing") && Catch::Contains("internvl12m"));
}

}  // namespace
}  // namespace equipoise
