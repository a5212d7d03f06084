#include "trainer/loop/best_measure.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "configs/base/error.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;

RunConfig Config(const std::string& best) {
  RunConfig config;
  config.checkpoint.best = best;
  config.data.eval = {{"data/held.jsonl"}};
  config.eval.every = config.eval.answer_every = 10;
  config.eval.answers = {{"data/doc.jsonl"}, {"data/chart.jsonl"}};
  return config;
}

StepResult Measured(double loss, double anls) {
  StepResult step;
  step.eval_loss = loss;
  AnswerScores scores;
  scores.anls = anls;
  step.answers = {{"doc", AnswerScores()}, {"chart", scores}};
  return step;
}

TEST_CASE("the best step is that of the lowest loss, or of the highest score", "[best][cpu]") {
  const bool loss = GENERATE(true, false);
  const BestMeasure best(Config(loss ? "eval_loss" : "chart/anls"));
  TrainState state;
  const auto improves = [&](int64_t step, double goodness) {
    state.step = step;
    return best.Improves(Measured(-goodness, goodness), state);
  };
  CHECK(improves(10, 0.3));
  CHECK_FALSE(improves(20, 0.3));  // of equal ones the first
  CHECK_FALSE(improves(30, 0.2));
  CHECK_FALSE(improves(40, std::nan("")));
  CHECK(improves(50, 0.4));
  CHECK(state.best->step == 50);
  CHECK(state.best->value == (loss ? -0.4 : 0.4));
  CHECK_FALSE(best.Improves(StepResult(), state));  // a step after which nothing was measured
}

TEST_CASE("a value of another measure is no rival", "[best][cpu]") {
  TrainState state;
  state.best = BestStep{"doc/anls", 0.9, 5};
  CHECK(BestMeasure(Config("chart/anls")).Improves(Measured(1, 0.1), state));
  CHECK(state.best->measure == "chart/anls");
  CHECK_FALSE(BestMeasure(Config("chart/choice")).Improves(Measured(1, 1), state));
  CHECK_FALSE(BestMeasure(Config("")).Improves(Measured(1, 1), state));
}

TEST_CASE("a value on other data is no rival", "[best][cpu]") {
  for (const char* name : {"eval_loss", "chart/anls"}) {
    RunConfig config = Config(name);
    TrainState state;
    REQUIRE(BestMeasure(config).Improves(Measured(1, 0.5), state));
    CHECK_FALSE(BestMeasure(config).Improves(Measured(2, 0.4), state));
    config.eval.answers[0].annotations = "data/other.jsonl";  // of another set
    CHECK_FALSE(BestMeasure(config).Improves(Measured(2, 0.4), state));
    config.eval.samples += 1;
    config.eval.answer_samples += 1;
    CHECK(BestMeasure(config).Improves(Measured(2, 0.4), state));
    state.best->data.clear();  // of an older checkpoint
    CHECK_FALSE(BestMeasure(config).Improves(Measured(3, 0.3), state));
    config.data.eval[0].annotations = "data/other.jsonl";
    config.eval.answers[1].annotations = "data/other/chart.jsonl";
    state.best->data = "0";
    CHECK(BestMeasure(config).Improves(Measured(3, 0.3), state));
  }
}

TEST_CASE("a measure that the run does not have is refused", "[best][cpu]") {
  const auto message = [](const RunConfig& config) -> std::string {
    try {
      const BestMeasure best(config);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message(Config("doc/exact")).empty());
  for (const char* name : {"loss", "doc", "doc/", "/anls", "docs/anls", "doc/ANLS"})
    CHECK_THAT(message(Config(name)), Contains("checkpoint.best") && Contains("doc, chart"));
  RunConfig config = Config("doc/anls");
  config.eval.answer_every = 0;
  CHECK_THAT(message(config), Contains("eval.answer_every"));
  config = Config("eval_loss");
  config.eval.every = 0;
  CHECK_THAT(message(config), Contains("eval.every"));
  config.data.eval.clear();
  CHECK_THAT(message(config), Contains("data.eval"));
}

TEST_CASE("the choice of options is refused of a set that lists none", "[best][cpu]") {
  // data/doc.jsonl lists options, data/chart.jsonl none.
  const auto has_choice = [](size_t source) { return source == 0; };
  CHECK_NOTHROW(BestMeasure(Config("doc/choice")).CheckChoice(has_choice));
  const BestMeasure best(Config("chart/choice"));
  CHECK_THROWS_AS(best.CheckChoice(has_choice), ConfigError);
  CHECK_THROWS_WITH(best.CheckChoice(has_choice),
                    Contains("checkpoint.best: chart/choice is never measured") &&
                        Contains("such as chart/exact"));
  // What another measure is of is not read.
  for (const char* name : {"", "eval_loss", "chart/exact"})
    CHECK_NOTHROW(BestMeasure(Config(name)).CheckChoice([](size_t) -> bool { throw 0; }));
}

}  // namespace
}  // namespace equipoise
