#include "trainer/answers/answer_eval.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <memory>
#include <sstream>

#include "configs/base/json.h"
#include "models/families/families.h"
#include "models/weights/weights.h"
#include "parallel/comm/single_communicator.h"
#include "tests/data/data_fixture.h"
#include "tests/data/tiny_tokenizer.h"
#include "tests/parallel/run_ranks.h"
#include "trainer/answers/answer_files.h"
#include "trainer/answers/question_file.h"
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
  config.data.chat_template = "chatml";
  config.data.max_bad_share = 1;
  config.data.limits.image_pixels = 14 * 14;
  config.data.tokenizer = data.folder / "model";
  config.run.dir = data.folder / "run";
  return config;
}

// A model with random weights, shared by the ranks of `world`.
std::unique_ptr<ParallelModel> RandomModel(const ModelConfig& config, const Degrees& degrees,
                                           Communicator& world, TimelineRecorder& recorder) {
  Plan plan = InlinePlan(degrees);
  const int layers = static_cast<int>(LayerSpecs(config).size());
  for (int stage = 0; stage <= degrees.pipeline; ++stage)
    plan.stage_begins.push_back(stage * layers / degrees.pipeline);
  ParallelModel::Options options;
  options.part.inference = true;
  auto model = std::make_unique<ParallelModel>(config, plan, options, world, recorder);
  InitializeWeights(model->parameters().parameters(), config, 1);
  model->parameters().UpdateCompute();
  return model;
}

// What the ranks of a mesh answer with.
struct Rank {
  Communicator& world;
  const OpenedData& opened;
  const Responder& responder;
  AnswerSession& session;
};

// Runs `run` on each rank, with a random model.
void OnRanks(const RunConfig& config, const Degrees& degrees,
             const std::function<void(const Rank&)>& run) {
  RunRanks(degrees.data * degrees.pipeline * degrees.tensor, [&](Communicator& world) {
    const OpenedData opened(config, config.data.train, world);
    const Responder responder(&opened.model_config, &opened.tokenizer, &opened.chat_template,
                              &config.data);
    TimelineRecorder recorder(world.rank());
    const auto model = RandomModel(opened.model_config, degrees, world, recorder);
    AnswerSession session(*model, responder, world);
    run({world, opened, responder, session});
  });
}

TEST_CASE("a picture that cannot be used counts as a wrong answer", "[trainer][cpu]") {
  DataFixture data;
  RunConfig config = WriteCase(data);
  SingleCommunicator world;
  const OpenedData opened(config, config.data.train, world);
  CHECK(AnswerableSamples(opened.index, 2) == std::vector<int64_t>{0, 2});
  const std::vector<int64_t> samples = AnswerableSamples(opened.index, 100);
  REQUIRE(samples == std::vector<int64_t>{0, 2, 3, 4, 5});

  const Responder answerer(&opened.model_config, &opened.tokenizer, &opened.chat_template,
                           &config.data);
  GenerateOptions options;
  options.max_new_tokens = 2;
  const Questions questions{opened.dataset, samples, {}};
  TimelineRecorder recorder(0);
  const auto model = RandomModel(opened.model_config, {}, world, recorder);
  AnswerSession session(*model, answerer, world);
  AnsweredSource source;
  source.source = config.data.train[0];
  source.answers = AnswerSamples(session, answerer, questions, options).value();
  CHECK_FALSE(AnswerSamples(session, answerer, questions, options, [] { return true; }));
  REQUIRE(source.answers.size() == 5);
  CHECK(source.faults() == 3);
  for (size_t i = 0; i < 5; ++i) {
    INFO(source.answers[i].id);
    CHECK(source.answers[i].fault.empty() == (i < 2));
    CHECK_FALSE((i >= 2 && source.answers[i].exact()));
    CHECK(source.answers[i].reference == (i == 0 ? "Hi" : "A"));
  }
  CHECK_THAT(source.answers[3].fault, Contains("gone.png"));
  CHECK_THAT(source.answers[4].fault, Contains("image_pixels"));
  for (SampleAnswer& answer : source.answers) answer.scores.exact = answer.fault.empty() ? 1 : 0;
  CHECK(source.Mean().exact == Approx(0.4));
  CHECK(source.exact() == 2);

  WriteAnswers(data.folder / "answers.jsonl", {source});
  std::istringstream lines(ReadWholeFile(data.folder / "answers.jsonl"));
  int faults = 0;
  for (std::string line; std::getline(lines, line);) faults += Json::parse(line).contains("fault");
  CHECK(faults == 3);

  // Also where a picture passes the index and is too large for the limits when it is decoded.
  DataConfig strict = config.data;
  strict.limits.image_pixels = 10;
  const Responder careful(&opened.model_config, &opened.tokenizer, &opened.chat_template, &strict);
  AnswerSession strictly(*model, careful, world);
  const auto again = AnswerSamples(strictly, careful, {opened.dataset, {2}, {}}, options).value();
  REQUIRE(again.size() == 1);
  CHECK_FALSE(again[0].fault.empty());
  CHECK_FALSE(again[0].exact());
}

TEST_CASE("a choice is measured where a question lists options", "[trainer][cpu]") {
  DataFixture data;
  RunConfig config = WriteCase(data);
  const std::string options = "Which?\nA. a disc\nB. a bar";
  data.WriteRecords({RecordLine("none", "", "Which, A. or B.?", "A"),
                     RecordLine("no option", "", options, "a square"),
                     RecordLine("letter", "", options, "B")});
  SingleCommunicator world;
  const OpenedData opened(config, config.data.train, world);
  CHECK_FALSE(HasChoice(opened.dataset, {}));
  CHECK_FALSE(HasChoice(opened.dataset, {0, 1}));
  CHECK(HasChoice(opened.dataset, {0, 1, 2}));
}

TEST_CASE("a question is asked as its record is trained", "[trainer][cpu]") {
  DataFixture data;
  RunConfig config = WriteCase(data);
  const std::string tools = R"({"tools":[{"name":"look","parameters":{}}],)";
  data.WriteRecords({RecordLine("good", "\"one.png\"", "What?", "A"),
                     tools + RecordLine("tools", "", "Hello", "Hi").substr(1),
                     RecordLine("wide", "\"wide.png\"", "What?", "A"),
                     R"({"objects":{"ref":["it"],"bbox":[[14,7,28,14]]},)" +
                         RecordLine("box", "\"wide.png\"", "<ref-object>?", "<bbox>").substr(1)});
  config.data.limits.image_pixels = 56 * 28;
  config.data.tiles = {1, 4, true};
  config.data.train[0].max_tiles = GENERATE(0, 1);
  SingleCommunicator world;
  const OpenedData opened(config, config.data.train, world);
  const Responder responder(&opened.model_config, &opened.tokenizer, &opened.chat_template,
                            &config.data);
  for (int64_t sample = 0; sample < 4; ++sample) {
    const ScannedSample trained = opened.dataset.Scan(sample);
    INFO("sample " << sample << " " << trained.reason);
    REQUIRE(trained.defect == Defect::kNone);
    const AskedQuestion asked = AskSample(responder, opened.dataset, sample, /*decode=*/true);
    REQUIRE(asked.prompt);
    CHECK(asked.prompt->pictures == trained.all_pictures());
    const std::vector<int32_t>& ids = asked.prompt->ids;
    REQUIRE(ids.size() < trained.encoded.ids.size());
    CHECK(std::equal(ids.begin(), ids.end(), trained.encoded.ids.begin()));
  }
  CHECK(opened.dataset.Scan(3).record.turns[1].text.starts_with("<box>[["));
}

TEST_CASE("a file's questions and their first references have their boxes", "[trainer][cpu]") {
  const TemporaryFolder folder;
  const std::string objects = R"("image":"a.png","objects":{"ref":["cat"],"bbox":[[1,2],[3,4]]}})";
  folder.Write("q.jsonl",
               R"({"query":"<ref-object> near <bbox>?","response":"<bbox>","answers":["x"],)" +
                   objects + "\n" + R"({"question":"<bbox>?","answer":"No, <bbox>",)" + objects +
                   "\n");
  std::vector<FileQuestion> questions = ReadQuestions(folder / "q.jsonl");
  REQUIRE(questions.size() == 2);
  for (FileQuestion& question : questions)
    WriteObjects({ImageSpec(), TilesConfig()}, {{10, 20}}, question);
  CHECK(questions[0].question() == "cat near [(100,100)]?");
  CHECK(questions[0].references == std::vector<std::string>{"[(300,200)]", "x"});
  CHECK(questions[1].question() == "[(100,100)]?");
  CHECK(questions[1].references == std::vector<std::string>{"No, [(300,200)]"});
}

TEST_CASE("a question alone has what was said before it, and functions", "[trainer][cpu]") {
  const TemporaryFolder folder;
  folder.Write("q.jsonl",
               R"({"id":[1],"query":"And then?","history":[["Who?","I."],["Where?","Here."]],)"
               R"("system":"Be brief.","tools":[{"name":"look","about":{}}]})");
  const FileQuestion question = ReadQuestions(folder / "q.jsonl")[0];
  CHECK(question.id == Json({1}));
  std::vector<std::string> said;
  for (const Turn& turn : question.record.turns) said.push_back(turn.text);
  using Texts = std::vector<std::string>;
  CHECK(said == Texts{"Be brief.", "Who?", "I.", "Where?", "Here.", "And then?"});
  CHECK(question.record.tools ==
        R"({"type": "function", "function": {"name": "look", "about": {}}})");
  folder.Write("q.jsonl", R"({"question":7,"history":"before"})");
  CHECK_THROWS_WITH(ReadQuestions(folder / "q.jsonl"),
                    Catch::Contains("q.jsonl:1: 'history' is no list of [question, answer]"));
}

TEST_CASE("a question has the system text of its record", "[trainer][cpu]") {
  const TemporaryFolder folder;
  folder.Write("q.jsonl", R"({"question":"How?","answer":"So.","system":"Be brief."})"
                          "\n"
                          R"({"question":"How?","system":""})"
                          "\n");
  const std::vector<FileQuestion> questions = ReadQuestions(folder / "q.jsonl");
  REQUIRE(questions.size() == 2);
  REQUIRE(questions[0].record.turns.size() == 2);
  CHECK(questions[0].record.turns[0].role == Role::kSystem);
  CHECK(questions[0].record.turns[0].text == "Be brief.");
  CHECK(questions[0].question() == "How?");
  CHECK(questions[1].record.turns.size() == 1);
}

TEST_CASE("the ranks of every mesh give the same answers", "[trainer][cpu]") {
  DataFixture data;
  const RunConfig config = WriteCase(data);
  const auto answer = [&](const Degrees& degrees) {
    const int ranks = degrees.data * degrees.pipeline * degrees.tensor;
    std::vector<std::vector<std::string>> texts(static_cast<size_t>(ranks));
    OnRanks(config, degrees, [&](const Rank& rank) {
      GenerateOptions options;
      options.max_new_tokens = 6;
      const Questions questions{
          rank.opened.dataset, AnswerableSamples(rank.opened.index, 100), {2, 0}};
      for (const double temperature : {0.0, 1.0}) {
        options.temperature = temperature;
        options.top_p = 0.9;
        const auto answers = AnswerSamples(rank.session, rank.responder, questions, options);
        for (const SampleAnswer& one : answers.value())
          texts[static_cast<size_t>(rank.world.rank())].push_back(one.answer + "|" + one.fault);
      }
    });
    return texts;
  };
  const std::vector<std::string> alone = answer({}).front();
  REQUIRE(alone.size() == 10);
  CHECK(alone[0] != alone[5]);  // greedy and drawn
  for (const Degrees degrees :
       {Degrees{2, 1, 1}, Degrees{1, 2, 1}, Degrees{1, 1, 2}, Degrees{2, 2, 1}, Degrees{3, 1, 1}}) {
    for (const std::vector<std::string>& texts : answer(degrees)) CHECK(texts == alone);
  }
}

TEST_CASE("a question that one rank of a model cannot ask is asked by none", "[trainer][cpu]") {
  DataFixture data;
  const RunConfig config = WriteCase(data);
  // Of rank `failing`, or of all.
  const auto answer = [&](const Degrees& degrees, int failing) {
    const int ranks = degrees.data * degrees.pipeline * degrees.tensor;
    std::vector<std::vector<GivenAnswer>> given(static_cast<size_t>(ranks));
    OnRanks(config, degrees, [&](const Rank& rank) {
      QuestionList questions;
      questions.lengths = {5, 5, 5, 5};
      questions.ask = [&](int64_t question, bool decode) -> AskedQuestion {
        if (question % 2 == 1 && (failing < 0 || failing == rank.world.rank()))
          return {std::nullopt, "cannot be read"};
        Record record;
        record.turns = {{Role::kUser, question < 2 ? "Hello" : "What?"}};
        return rank.responder.Ask(record, {}, decode);
      };
      GenerateOptions options;
      options.max_new_tokens = 4;
      given[static_cast<size_t>(rank.world.rank())] =
          rank.session.Answer(questions, {}, options).value();
    });
    return given;
  };
  const std::vector<GivenAnswer> expected = answer({}, -1).front();
  REQUIRE(expected.size() == 4);
  CHECK_FALSE(expected[1].fault.empty());
  for (const Degrees degrees : {Degrees{1, 2, 1}, Degrees{1, 1, 2}}) {
    for (const int failing : {0, 1}) {
      for (const std::vector<GivenAnswer>& answers : answer(degrees, failing)) {
        for (size_t i = 0; i < expected.size(); ++i) {
          CHECK(answers[i].text == expected[i].text);
          CHECK(answers[i].fault.empty() == expected[i].fault.empty());
        }
      }
    }
  }
}

TEST_CASE("batches hold questions alike in length, the longest first", "[trainer][cpu]") {
  using Batches = std::vector<std::vector<int64_t>>;
  CHECK(BatchesByLength({5, 9, 5, 1}, {2, 0}) == Batches{{1, 0}, {2, 3}});
  CHECK(BatchesByLength({5, 9, 5, 1}, {4, 10}) == Batches{{1}, {0, 2}, {3}});
  CHECK(BatchesByLength({50, 9}, {4, 10}) == Batches{{0}, {1}});
  CHECK(BatchesByLength({}, {4, 10}).empty());
}

TEST_CASE("sets of questions have names of their own", "[trainer][cpu]") {
  CHECK(AnswerSetNames({{"a/doc.jsonl"}, {"b/chart.jsonl"}}) ==
        std::vector<std::string>{"doc", "chart"});
  CHECK(AnswerSetNames({{"a/doc.jsonl"}, {"b/doc.jsonl"}}) ==
        std::vector<std::string>{"doc-0", "doc-1"});
}

}  // namespace
}  // namespace equipoise
