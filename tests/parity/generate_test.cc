// Answers on every mesh: token by token those of one process, which are those of the largest logit
// of full forward passes.

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "models/families/families.h"
#include "parallel/comm/values.h"
#include "tests/models/model_support.h"
#include "tests/parallel/run_ranks.h"
#include "tests/parity/cell.h"
#include "trainer/answers/generator.h"

namespace equipoise::testing {
namespace {

constexpr int64_t kAnswerTokens = 9;

using Answers = std::vector<std::vector<std::vector<int32_t>>>;

// Five prompts of as many lengths, two of them with pictures, in three batches.
std::vector<std::vector<Prompt>> CellPrompts(const ModelConfig& config) {
  std::vector<std::vector<Prompt>> batches(3);
  for (int32_t i = 0; i < 5; ++i) {
    Prompt prompt;
    prompt.number = static_cast<uint64_t>(i);
    prompt.ids = {3};
    if (config.has_vision && i % 3 == 1) {
      const ImageSpec images = ImageSpecOf(config);
      prompt.pictures = images.LoadOfTiles(i);
      if (images.lists_grids()) prompt.grids = images.GridsOfTiles(i);
      prompt.pixel_values = Normal({i, 3, images.tile_size, images.tile_size}, 40 + i);
      prompt.ids.insert(prompt.ids.end(), static_cast<size_t>(prompt.pictures.image_tokens),
                        static_cast<int32_t>(config.image_token_id));
    }
    for (int32_t token = 0; token < 2 + 3 * i; ++token) {
      const int32_t id = (7 * token + i) % 60;
      prompt.ids.push_back(id == config.image_token_id ? id + 1 : id);  // text alone
    }
    batches[static_cast<size_t>(i % 3)].push_back(std::move(prompt));
  }
  return batches;
}

// The answers of the first data rank, the beginning of which are those of the second, which has one
// batch; others have none. They are given up when the ranks ask for the time `given_up`, from 0.
Answers Generate(const Cell& cell, const GenerateOptions& options,
                 const std::vector<int32_t>& stop = {}, std::optional<int> given_up = {}) {
  const ModelConfig config = CellModel(cell.model);
  const Plan plan = CellPlan(cell, config);
  std::vector<Answers> answers(static_cast<size_t>(cell.ranks()));
  RunRanks(cell.ranks(), [&](Communicator& world) {
    TimelineRecorder recorder(world.rank());
    ParallelModel::Options parallel;
    parallel.part.inference = cell.zero == 0;
    ParallelModel model(config, plan, parallel, world, recorder);
    SetWeights(model.parameters());
    std::vector<std::vector<Prompt>> prompts = CellPrompts(config);
    const auto data = static_cast<size_t>(model.groups().at.data);
    if (data > 0) prompts.resize(data < 2 ? 1 : 0);
    for (std::vector<Prompt>& batch : prompts) {
      for (Prompt& prompt : batch) {
        if (!model.part().needs_pictures()) prompt.pixel_values = at::Tensor();
      }
    }
    GiveUp give_up{&world, {}};
    if (given_up)
      give_up.agree = [&world, given_up, n = 0]() mutable {
        if (AllReduceValue<int64_t>(world, n, ReduceOp::kMax) != n)
          throw std::logic_error("ranks ask at other times");
        return n++ == *given_up;
      };
    answers[static_cast<size_t>(world.rank())] =
        Generator(model).Continue(prompts, stop, options, give_up);
  });
  for (Answers& each : answers) {
    Answers expected = answers.front();
    expected.resize(std::min(each.size(), expected.size()));
    const bool complete = cell.data > 1 || each.size() == answers.front().size();
    if (!complete || each != expected) throw std::logic_error("ranks have different answers");
  }
  return answers.front();
}

GenerateOptions Greedy() {
  GenerateOptions options;
  options.max_new_tokens = kAnswerTokens;
  return options;
}

// The largest logit of a full forward pass over prompt and answer, token after token.
std::vector<int32_t> Naive(Stage& stage, const ModelConfig& config, const Prompt& prompt) {
  std::vector<int32_t> answer;
  while (std::ssize(answer) < kAnswerTokens) {
    std::vector<int64_t> ids(prompt.ids.begin(), prompt.ids.end());
    ids.insert(ids.end(), answer.begin(), answer.end());
    MicroBatch batch;
    batch.input_ids = at::tensor(ids, at::kLong);
    batch.position_ids = at::arange(std::ssize(ids), at::kLong);
    batch.cu_seqlens = {0, std::ssize(ids)};
    batch.pixel_values = prompt.pixel_values;
    batch.image_grids = GridTensor(prompt.grids);
    if (prompt.pixel_values.defined()) {  // of the question: an answer has no pictures
      batch.image_positions = batch.input_ids.narrow(0, 0, std::ssize(prompt.ids))
                                  .eq(config.image_token_id)
                                  .nonzero()
                                  .reshape({-1});
    }
    const at::Tensor logits = stage.Evaluate(batch, {});
    answer.push_back(static_cast<int32_t>(logits[logits.size(0) - 1].argmax().item<int64_t>()));
  }
  return answer;
}

Answers NaiveAnswers(const std::string& name) {
  const ModelConfig config = CellModel(name);
  TestModel model = MakeModel(config);
  SetWeights(*model.flat);
  Answers answers;
  for (const std::vector<Prompt>& batch : CellPrompts(config)) {
    auto& row = answers.emplace_back();
    for (const Prompt& prompt : batch) row.push_back(Naive(*model.stage, config, prompt));
  }
  return answers;
}

Cell Meshes() {
  Cell cell;
  std::tie(cell.pipeline, cell.tensor, cell.schedule, cell.sequence) =
      GENERATE(table<int, int, std::string, bool>({{1, 1, "1f1b", false},
                                                   {2, 1, "1f1b", false},
                                                   {3, 1, "gpipe", false},
                                                   {4, 1, "zb_h1", false},
                                                   {2, 1, "interleaved", false},
                                                   {2, 1, "zb_v", false},
                                                   {1, 2, "1f1b", false},
                                                   {1, 3, "1f1b", false},
                                                   {2, 2, "1f1b", false},
                                                   {1, 3, "1f1b", true},
                                                   {2, 2, "1f1b", true}}));
  return cell;
}

TEST_CASE("greedy answers of every mesh are those of full forward passes", "[generate][cpu]") {
  at::set_num_threads(1);
  Cell cell = Meshes();
  cell.model = GENERATE("internvl-qwen2", "internvl-llama", "qwen2-tied", "llava-llama",
                        "llava_next-llama", "llama-longrope");
  INFO(ToString(cell));
  const Answers answers = Generate(cell, Greedy());
  CHECK(answers == NaiveAnswers(cell.model));
  CHECK(answers[0][0] != answers[0][1]);
}

TEST_CASE("answers with an encoder on its own ranks, and in bubbles", "[generate][cpu]") {
  at::set_num_threads(1);
  Cell cell;
  cell.pipeline = 2;
  cell.encoder = GENERATE(EncoderPlacement::kDisaggregated, EncoderPlacement::kThreePhase,
                          EncoderPlacement::kOptimus);
  cell.tensor = GENERATE(1, 2);
  INFO(ToString(cell));
  CHECK(Generate(cell, Greedy()) == NaiveAnswers(cell.model));
}

TEST_CASE("answers where data ranks share the weights out", "[generate][cpu]") {
  at::set_num_threads(1);
  Cell cell;
  cell.data = GENERATE(2, 3);
  cell.pipeline = GENERATE(1, 2);
  cell.zero = 3;
  INFO(ToString(cell));
  CHECK(Generate(cell, Greedy()) == NaiveAnswers(cell.model));
}

TEST_CASE("answers that are drawn are the same on every mesh", "[generate][cpu]") {
  at::set_num_threads(1);
  const Cell cell = Meshes();
  INFO(ToString(cell));
  GenerateOptions options = Greedy();
  options.temperature = 1.5;
  options.top_p = GENERATE(1.0, 0.8);
  options.seed = 3;
  const Answers alone = Generate({}, options);
  CHECK(Generate(cell, options) == alone);
  CHECK(alone != Generate({}, Greedy()));
  options.seed = 4;
  CHECK(alone != Generate({}, options));
}

TEST_CASE("an answer ends before the first stop token", "[generate][cpu]") {
  at::set_num_threads(1);
  Cell cell;
  cell.pipeline = GENERATE(1, 2);
  const Answers whole = Generate(cell, Greedy());
  const int32_t stop = whole[0][0][4];
  Answers expected = whole;
  for (auto& batch : expected) {
    for (std::vector<int32_t>& answer : batch)
      answer.erase(std::find(answer.begin(), answer.end(), stop), answer.end());
  }
  CHECK(Generate(cell, Greedy(), {stop}) == expected);
  CHECK(expected != whole);
}

TEST_CASE("answers are given up by all ranks together, wherever each of them is",
          "[generate][cpu]") {
  at::set_num_threads(1);
  Cell cell;
  std::tie(cell.data, cell.pipeline, cell.tensor, cell.zero) = GENERATE(table<int, int, int, int>(
      {{1, 1, 1, 0}, {3, 1, 1, 0}, {2, 2, 1, 0}, {2, 1, 2, 0}, {3, 2, 1, 3}}));
  INFO(ToString(cell));
  GenerateOptions options = Greedy();
  options.max_new_tokens = 3 * GiveUp::kPassesBetween;
  const Answers whole = Generate({}, options);
  const auto cut = [&](size_t tokens) {
    Answers cut = whole;
    for (auto& batch : cut) {
      for (std::vector<int32_t>& answer : batch) answer.resize(tokens);
    }
    return cut;
  };
  CHECK(Generate(cell, options, {}, 99) == whole);  // never
  CHECK(Generate(cell, options, {}, 0) == cut(0));
  CHECK(Generate(cell, options, {}, 2) == cut(2 * GiveUp::kPassesBetween));
  // The second data rank ends in other passes than the first, others have nothing to answer.
  const int32_t stop = whole[1][0][20];
  CHECK(Generate(cell, options, {stop}, 99) == Generate(cell, options, {stop}));
}

TEST_CASE("a token is drawn by its probability, within the nucleus", "[generate][cpu]") {
  const std::vector<double> p = {0.5, 0.25, 0.125, 0.125};
  const at::Tensor logits = at::tensor(p, at::kDouble).log().to(at::kFloat);
  const auto shares = [&](double temperature, double top_p) {
    GenerateOptions options;
    options.temperature = temperature;
    options.top_p = top_p;
    std::vector<double> share(4);
    for (uint64_t number = 0; number < 4000; ++number)
      share[static_cast<size_t>(SampleToken(logits, options, number, 0))] += 1 / 4000.0;
    return share;
  };
  const std::vector<double> all = shares(1, 1), two = shares(1, 0.7), one = shares(1, 0.4),
                            cold = shares(0.5, 1);
  for (size_t i = 0; i < 4; ++i) CHECK(all[i] == Approx(p[i]).margin(0.03));
  CHECK(two[0] == Approx(2.0 / 3).margin(0.03));
  CHECK(two[0] + two[1] == Approx(1));
  CHECK(one[0] == Approx(1));
  CHECK(cold[0] == Approx(16.0 / 22).margin(0.03));  // of the squares
}

}  // namespace
}  // namespace equipoise::testing
