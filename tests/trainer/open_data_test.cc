#include "trainer/run/open_data.h"

#include <catch2/catch.hpp>
#include <sstream>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "models/families/families.h"
#include "parallel/comm/single_communicator.h"
#include "tests/data/data_fixture.h"
#include "tests/data/tiny_tokenizer.h"

namespace equipoise {
namespace {

// The fixture's records for the quickstart model, whose picture token is made to agree.
RunConfig ConfigFor(const DataFixture& data, bool same_picture_token = true) {
  RunConfig config;
  config.model.preset = "quickstart";
  config.data = data.config;
  config.data.max_tokens = 512;
  config.data.chat_template = "chatml";
  config.data.tokenizer = data.folder / "model";
  config.run.dir = data.folder / "run";
  Json tokenizer = TinyTokenizerJson();
  if (same_picture_token) {
    for (Json& token : tokenizer["added_tokens"]) {
      if (token["content"] == "<IMG_CONTEXT>") token["id"] = 2047;
    }
  }
  data.folder.Write("model/tokenizer.json", tokenizer.dump());
  return config;
}

TEST_CASE("data opens with the model's tile size and joins index and records", "[trainer][cpu]") {
  DataFixture data;
  data.WriteRecords(DataFixture::MixedLines(8));
  const RunConfig config = ConfigFor(data);
  SingleCommunicator world;
  const OpenedData opened(config, config.data.train, world);
  REQUIRE(opened.index.size() == 8);
  CHECK(opened.opened.built);
  const Pack pack = PackInOrder(opened.index, 512, 3).at(0);
  const LoadedPack loaded = opened.dataset.Load(pack);
  CHECK(loaded.bad.empty());
  CHECK(loaded.batch.pixel_values.size(3) == opened.model_config.vision.image_size);
  CHECK(loaded.batch.image_positions.size(0) ==
        loaded.batch.tiles() * ImageSpecOf(opened.model_config).tokens_per_tile);
  CHECK_FALSE(OpenedData(config, config.data.train, world).opened.built);
}

TEST_CASE("what the index leaves out is quarantined once, with its reason", "[trainer][cpu]") {
  DataFixture data;
  auto lines = DataFixture::MixedLines(8);
  lines[2] = "{";
  lines[5] = RecordLine("gone", "\"gone.png\"", "Q", "A");
  data.WriteRecords(lines);
  RunConfig config = ConfigFor(data);
  config.data.max_bad_share = 1;
  SingleCommunicator world;
  const OpenedData opened(config, config.data.train, world);
  Quarantine quarantine(data.folder / "quarantine.jsonl");
  int calls = 0;
  const auto alive = [&calls] { ++calls; };
  QuarantineDefects(opened, quarantine, alive);
  CHECK(calls > 0);
  QuarantineDefects(opened, quarantine, alive);
  std::istringstream text(ReadWholeFile(data.folder / "quarantine.jsonl"));
  std::vector<Json> found;
  for (std::string line; std::getline(text, line);) found.push_back(Json::parse(line));
  REQUIRE(found.size() == 2);
  CHECK(found[0]["line"] == 3);
  CHECK(found[1]["id"] == "gone");
  CHECK(found[1]["reason"] == "gone.png: no such file in the image folder");
  CHECK_FALSE(found[1].contains("step"));
}

TEST_CASE("an encoder is not trained on records without pictures", "[trainer][cpu]") {
  DataFixture data;
  data.WriteRecords({RecordLine("a", "", "Q", "A"), RecordLine("b", "", "Q", "B")});
  RunConfig config = ConfigFor(data);
  SingleCommunicator world;
  const auto require = [&] {
    RequirePicturesToTrain(config, OpenedData(config, config.data.train, world));
  };
  CHECK_NOTHROW(require());
  for (const std::vector<std::string>& frozen :
       {std::vector<std::string>{"llm"}, {"vision", "llm"}, {"projector", "llm"}}) {
    config.model.freeze = frozen;
    CHECK_THROWS_AS(require(), ConfigError);
    CHECK_THROWS_WITH(require(), Catch::Contains("model.freeze: trains the encoder and the "
                                                 "projector alone, and no record"));
  }
  config.model.freeze = {"vision"};
  CHECK_NOTHROW(require());
  data.WriteRecords(DataFixture::MixedLines(8));
  config.model.freeze = {"llm"};
  CHECK_NOTHROW(require());
}

TEST_CASE("an added token behind the model's rows is text, a word of the vocabulary is refused",
          "[trainer][cpu]") {
  DataFixture data;
  data.WriteRecords({RecordLine("a", "", "Q", "<video>us")});
  RunConfig config = ConfigFor(data);
  const std::string file = data.folder / "model/tokenizer.json";
  Json json = ReadJsonFile(file);
  const auto write = [&] { data.folder.Write("model/tokenizer.json", json.dump()); };
  SingleCommunicator world;
  const OpenedData before(config, config.data.train, world);
  json["added_tokens"].push_back({{"id", 2048}, {"content", "<video>"}, {"special", true}});
  write();
  const OpenedData after(config, config.data.train, world);
  CHECK(after.opened.built);
  CHECK(after.tokenizer.left_out().size() == 1);
  CHECK(after.index.size() == 1);
  CHECK(after.index[0].tokens == before.index[0].tokens);
  json["model"]["vocab"]["zz"] = 2048;
  json["added_tokens"].erase(json["added_tokens"].size() - 1);
  write();
  CHECK_THROWS_WITH(OpenedData(config, config.data.train, world),
                    Catch::Contains("has ids up to 2048, that of 'zz', the model's vocab_size is "
                                    "2048"));
}

TEST_CASE("a tokenizer that is not the model's is refused", "[trainer][cpu]") {
  DataFixture data;
  data.WriteRecords(DataFixture::MixedLines(4));
  SingleCommunicator world;
  const RunConfig other = ConfigFor(data, /*same_picture_token=*/false);
  CHECK_THROWS_AS(OpenedData(other, other.data.train, world), ConfigError);
  RunConfig none = ConfigFor(data);
  none.model.preset = "";
  CHECK_THROWS_AS(OpenedData(none, none.data.train, world), ConfigError);
  RunConfig no_tokenizer = ConfigFor(data);
  no_tokenizer.data.tokenizer = "";
  CHECK_THROWS_AS(OpenedData(no_tokenizer, no_tokenizer.data.train, world), ConfigError);
}

}  // namespace
}  // namespace equipoise
