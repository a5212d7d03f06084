#include "trainer/answers/answer_eval.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "configs/base/json.h"
#include "models/weights/weights.h"
#include "parallel/comm/single_communicator.h"
#include "tests/data/data_fixture.h"
#include "tests/data/tiny_tokenizer.h"
#include "trainer/answers/answer_files.h"
#include "trainer/checkpoint/loaded_model.h"
#include "trainer/run/open_data.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;

// Five questions, of which the last three have pictures that cannot be used, and a torn record.
RunConfig WriteCase(DataFixture& data) {
  data.WriteRecords({RecordLine("text", "", "Hello", "Hi"), "{",
                     RecordLine("good", "\"one.png\"", "What?", "A"),
                     RecordLine("cut", "\"cut.png\"", "What?", "A"),
                     RecordLine("gone", "\"gone.png\"", "What?", "A"),
                     RecordLine("large", "\"wide.png\"", "What?", "A")});
  const std::string picture = TinyPng(14, 14);
  data.folder.Write("images/cut.png", picture.substr(0, picture.size() * 6 / 10));
  Json tokenizer = TinyTokenizerJson();
  for (Json& token : tokenizer["added_tokens"]) {
    if (token["content"] == "<IMG_CONTEXT>") token["id"] = 2047;
  }
  data.folder.Write("model/tokenizer.json", tokenizer.dump());
  RunConfig config;
  config.model.preset = "quickstart";
  config.data = data.config;
  config.data.max_tokens = 512;
  config.data.max_bad_share = 1;
  config.data.limits.image_pixels = 14 * 14;
  config.data.tokenizer = data.folder / "model";
  config.run.dir = data.folder / "run";
  return config;
}

TEST_CASE("a picture that cannot be used counts as a wrong answer", "[trainer][cpu]") {
  DataFixture data;
  RunConfig config = WriteCase(data);
  SingleCommunicator world;
  const OpenedData opened(config, config.data.train, world);
  CHECK(AnswerableSamples(opened.index, 2) == std::vector<int64_t>{0, 2});
  const std::vector<int64_t> samples = AnswerableSamples(opened.index, 100);
  REQUIRE(samples == std::vector<int64_t>{0, 2, 3, 4, 5});

  LoadOptions inference;
  inference.inference = true;
  LoadedModel model = BuildModel(opened.model_config, inference);
  InitializeWeights(model.parameters->parameters(), model.config, 1);
  const Responder answerer({model.stage.get(), &model.config}, &opened.tokenizer,
                           &opened.chat_template, &config.data);
  AnsweredSource source;
  source.source = config.data.train[0];
  source.answers = AnswerSamples(answerer, {opened.dataset, samples, 2}, world).value();
  CHECK_FALSE(AnswerSamples(answerer, {opened.dataset, samples, 2}, world, [] { return true; }));
  REQUIRE(source.answers.size() == 5);
  CHECK(source.faults() == 3);
  for (size_t i = 0; i < 5; ++i) {
    INFO(source.answers[i].id);
    CHECK(source.answers[i].fault.empty() == (i < 2));
    CHECK_FALSE((i >= 2 && source.answers[i].exact));
    CHECK(source.answers[i].reference == (i == 0 ? "Hi" : "A"));
  }
  CHECK_THAT(source.answers[3].fault, Contains("gone.png"));
  CHECK_THAT(source.answers[4].fault, Contains("image_pixels"));
  for (SampleAnswer& answer : source.answers) answer.exact = answer.fault.empty();
  CHECK(source.exact_share() == Approx(0.4));

  WriteAnswers(data.folder / "answers.jsonl", {source});
  std::istringstream lines(ReadWholeFile(data.folder / "answers.jsonl"));
  int faults = 0;
  for (std::string line; std::getline(lines, line);) faults += Json::parse(line).contains("fault");
  CHECK(faults == 3);

  // Also where a picture passes the index and is too large for the limits when it is decoded.
  DataConfig strict = config.data;
  strict.limits.image_pixels = 10;
  const Responder careful({model.stage.get(), &model.config}, &opened.tokenizer,
                          &opened.chat_template, &strict);
  const auto again = AnswerSamples(careful, {opened.dataset, {2}, 2}, world).value();
  REQUIRE(again.size() == 1);
  CHECK_FALSE(again[0].fault.empty());
  CHECK_FALSE(again[0].exact);
}

}  // namespace
}  // namespace equipoise
