#include "trainer/planner/make_plan.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "configs/yaml/yaml_reader.h"
#include "models/families/modules.h"
#include "models/families/presets.h"
#include "tests/trainer/scratch_folder.h"
#include "trainer/planner/plan_pins.h"
#include "trainer/planner/plan_yaml.h"

namespace equipoise {
namespace {

using Words = std::vector<std::string>;

// The recompute of each layer, one letter a layer: n, a, m, f.
std::string RecomputeOf(const std::string& word, const Words& modules = {},
                        const std::vector<Recompute>& layers = {}) {
  RunConfig config;
  config.balance.recompute = ParseEnum<RecomputeRule>(word).value();
  config.balance.recompute_modules = modules;
  config.balance.recompute_layers = layers;
  std::string letters;
  for (const Recompute kind : MakePlan(config, PresetConfig("quickstart"), 1).recompute) {
    letters += ToString(kind)[0];
  }
  return letters;
}

TEST_CASE("recompute is for all layers, for modules, or layer by layer") {
  // Patch embedding, blocks, projector; embedding, blocks, head.
  const std::string none = RecomputeOf("none");
  CHECK(none.find_first_not_of('n') == std::string::npos);
  CHECK(RecomputeOf("bar") == none);  // left to the planner, which `check` does not ask
  CHECK(RecomputeOf("full") == std::string(none.size(), 'f'));
  CHECK(RecomputeOf("mlp", {"vision", "projector", "llm"}) == std::string(none.size(), 'm'));
  const std::string vision = RecomputeOf("attention", {"vision"});
  const size_t end = vision.find('n');
  CHECK(end > 1);
  CHECK(vision == std::string(end, 'a') + std::string(none.size() - end, 'n'));
  std::vector<Recompute> layers(none.size(), Recompute::kNone);
  layers[1] = Recompute::kMlp;
  layers.back() = Recompute::kFull;
  std::string expected = none;
  expected[1] = 'm';
  expected.back() = 'f';
  CHECK(RecomputeOf("attention", {}, layers) == expected);
}

TEST_CASE("a recompute that does not fit the model is refused") {
  CHECK_THROWS_WITH(RecomputeOf("full", {"vison"}),
                    "balance.recompute_modules: this model has no 'vison'; use vision, projector "
                    "or llm");
  CHECK_THROWS_WITH(RecomputeOf("none", {"llm"}),
                    "balance.recompute_modules: says where balance.recompute is done, which is "
                    "none; set it to full, attention or mlp");
  CHECK_THROWS_WITH(RecomputeOf("bar", {"llm"}),
                    Catch::Matchers::Contains("chosen for each layer (bar)"));
  const std::vector<Recompute> all(RecomputeOf("none").size(), Recompute::kFull);
  CHECK_THROWS_WITH(RecomputeOf("full", {"llm"}, all),
                    Catch::Matchers::EndsWith("given layer by layer; take one of the two out"));
  CHECK_THROWS_WITH(RecomputeOf("none", {}, {Recompute::kNone, Recompute::kFull}),
                    Catch::Matchers::StartsWith("balance.recompute_layers: 2 words given, the "
                                                "model has "));
}

// The quickstart model has 8 layers of vision and projector, 8 of the language model.
Plan PlanOf(ParallelSection parallel, int ranks) {
  RunConfig config;
  config.parallel = std::move(parallel);
  return MakePlan(config, PresetConfig("quickstart"), ranks);
}

TEST_CASE("sequence parallelism needs tensor ranks") {
  ParallelSection parallel;
  parallel.sequence = true;
  CHECK_THROWS_WITH(PlanOf(parallel, 1),
                    "parallel.sequence: tensor ranks share out the tokens, and there is one; set "
                    "parallel.tensor to 2 or more, or leave parallel.sequence out");
  parallel.tensor = 2;
  const Plan plan = PlanOf(parallel, 2);
  CHECK(plan.sequence);
  CHECK(DescribePlan(plan) == "data 1 x pipeline 1 x tensor 2, sequence parallel");
  parallel.sequence = false;
  CHECK_FALSE(PlanOf(parallel, 2).sequence);
}

TEST_CASE("several groups of ranks may hold a copy each of what ZeRO shares out") {
  ParallelSection parallel;
  parallel.zero = 2;
  parallel.zero_ranks = 2;
  const Plan plan = PlanOf(parallel, 4);
  CHECK(plan.shards() == 2);
  CHECK(DescribePlan(plan) == "data 4 x pipeline 1 x tensor 1, ZeRO-2 on 2 ranks each");
  CHECK(PlanToYaml(plan, {}).find("  zero: 2\n  zero_ranks: 2\n") != std::string::npos);
  parallel.zero_ranks = 4;  // all of them
  CHECK(PlanOf(parallel, 4).zero_ranks == 0);
  parallel.zero_ranks = 3;
  CHECK_THROWS_WITH(PlanOf(parallel, 4),
                    "parallel.zero_ranks: 3 ranks do not divide the 4 with the same weights "
                    "(parallel.data x parallel.context); use a divisor of 4");
  parallel.zero_ranks = 1;
  CHECK_THROWS_WITH(PlanOf(parallel, 4),
                    "parallel.zero_ranks: one rank shares out nothing; leave it out, or set "
                    "parallel.zero to 1, 2 or 3 and this to 2 or more");
  parallel.zero_ranks = 2;
  parallel.zero = 0;
  CHECK_THROWS_WITH(PlanOf(parallel, 4),
                    "parallel.zero_ranks: zero: 0 shares out nothing; leave it out, or set "
                    "parallel.zero to 1, 2 or 3 and this to 2 or more");
}

TEST_CASE("context ranks share out tokens and pictures, or are refused") {
  ParallelSection parallel;
  parallel.context = 2;
  const Plan plan = PlanOf(parallel, 4);
  CHECK(plan.data() == 2);
  CHECK(plan.same_weights() == 4);
  CHECK(plan.row_shares() == 2);
  CHECK(DescribePlan(plan) == "data 2 x pipeline 1 x context 2 x tensor 1, ZeRO-1");
  CHECK(PlanToYaml(plan, {}).find("  context: 2\n") != std::string::npos);
  CHECK_THROWS_WITH(PlanOf(parallel, 3),
                    "parallel.data x parallel.pipeline x parallel.context x parallel.tensor: 1 x 1 "
                    "x 2 x 1 needs 2 ranks, and 3 were started; use mpirun -n 2 or change the "
                    "degrees");
  ParallelSection one;
  one.data = 1;
  CHECK_THROWS_WITH(PlanOf(one, 2),
                    Catch::Contains("1 x 1 x 1 needs 1 rank, and 2 were started; use mpirun -n 1"));
  ParallelSection many = parallel;
  many.context = 64;
  CHECK(PlanOf(many, 64).context() == 64);  // of fewer heads: rows are shared out too
  ParallelSection apart = parallel;
  apart.encoder = "disaggregated";
  CHECK_THROWS_WITH(PlanOf(apart, 4),
                    "parallel.context: context ranks share out the pictures in the stage that has "
                    "the token embedding, and the encoder is to be disaggregated; set "
                    "parallel.encoder to inline");
  ParallelSection stages = parallel;
  stages.pipeline = 2;
  CHECK_THROWS_WITH(PlanOf(stages, 4),
                    "parallel.context: context ranks share out the pictures in the stage that has "
                    "the token embedding; set parallel.pipeline to 1, with one stage, or "
                    "parallel.stage_layers with 9 or more layers in the first stage");
  ParallelSection chunked = parallel;
  chunked.schedule = "interleaved";
  CHECK_THROWS_WITH(PlanOf(chunked, 4), Catch::Matchers::Contains("with one stage"));
  stages.stage_layers = {9, 7};
  CHECK(PlanOf(stages, 4).stage_layers() == std::vector<int>{9, 7});
  RunConfig config;
  config.parallel = parallel;
  ModelConfig model = PresetConfig("quickstart");
  model.vision.drop_path_rate = 0.1;
  CHECK_THROWS_WITH(MakePlan(config, model, 2),
                    "parallel.context: the encoder draws at random, which context ranks cannot do "
                    "alike; set model.drop_path to 0, or leave parallel.context out");
  config.model.freeze = {"vision"};
  CHECK(MakePlan(config, model, 2).context() == 2);
}

TEST_CASE("what is no schedule is refused") {
  ParallelSection parallel;
  parallel.schedule = "gpip";
  CHECK_THROWS_WITH(PlanOf(parallel, 1),
                    "parallel.schedule: 'gpip' is neither a schedule nor a file; did you mean "
                    "'gpipe'?");
  parallel.schedule = "optimus";
  CHECK_THROWS_WITH(PlanOf(parallel, 1),
                    Catch::Matchers::EndsWith("use naive, gpipe, 1f1b, zb_h1, interleaved, zb_v, "
                                              "pipedream_2bw"));
}

TEST_CASE("a schedule's file is read once: the plan has what it held") {
  const ScratchFolder scratch;
  const std::string path = scratch.Path("schedule.txt");
  const std::string text =
      "micro_batches 1\nstage 0 rank 0 next 1\nstage 1 rank 1 next 2\nstage 2 rank 1 next 3\n"
      "stage 3 rank 0\nrank 0: 0F0 3F0 3B0 0B0\nrank 1: 1F0 2F0 2B0 1B0\n";
  WriteText(path, text);
  ParallelSection parallel;
  parallel.pipeline = 2;
  parallel.chunks = 2;
  parallel.schedule = path;
  const Plan plan = PlanOf(parallel, 2);
  WriteText(path, "micro_batches 2\n");
  CHECK(plan.schedule == path);
  CHECK(plan.schedule_text == text);
  CHECK(plan.components.back().placement == Placement::kV);
  WriteText(path, "");
  CHECK_THROWS_WITH(PlanOf(parallel, 2), Catch::Matchers::StartsWith(path + ": cannot be read"));
}

ParallelSection Disaggregated() {
  ParallelSection parallel;
  parallel.encoder = "disaggregated";
  return parallel;
}

TEST_CASE("each schedule has its number of stages a rank, and deals them its way") {
  ParallelSection parallel;
  parallel.pipeline = 2;
  const auto ranks_of = [&] {
    const Plan plan = PlanOf(parallel, 2);
    std::vector<int> ranks;
    for (int stage = 0; stage < plan.num_stages(); ++stage)
      ranks.push_back(plan.RankOfStage(stage));
    return ranks;
  };
  CHECK(ranks_of() == std::vector<int>{0, 1});
  parallel.schedule = "interleaved";
  CHECK(ranks_of() == std::vector<int>{0, 1, 0, 1});
  parallel.schedule = "zb_v";
  CHECK(ranks_of() == std::vector<int>{0, 1, 1, 0});
  CHECK(PlanOf(parallel, 2).StagesOf(0) == std::vector<int>{0, 3});
  parallel.chunks = 3;
  CHECK_THROWS_WITH(ranks_of(),
                    "parallel.chunks: zb_v has 2 stages a rank; leave parallel.chunks out");
  parallel.schedule = "interleaved";
  CHECK(ranks_of() == std::vector<int>{0, 1, 0, 1, 0, 1});
  parallel.chunks = 1;
  CHECK_THROWS_WITH(ranks_of(), "parallel.chunks: interleaved needs 2 or more stages a rank");
  parallel.chunks = 2;
  parallel.schedule = "1f1b";
  CHECK_THROWS_WITH(ranks_of(),
                    "parallel.chunks: 1f1b has one stage a rank; use parallel.schedule: "
                    "interleaved");
}

TEST_CASE("a disaggregated encoder has the first pipeline ranks to itself") {
  const int encoder = NumEncoderLayers(PresetConfig("quickstart"));
  ParallelSection parallel = Disaggregated();
  Plan plan = PlanOf(parallel, 2);  // the fewest that there can be
  CHECK(plan.pipeline() == 2);
  CHECK(plan.stage_begins[1] == encoder);
  parallel.pipeline = 4;
  parallel.encoder_ranks = 2;
  parallel.schedule = "interleaved";
  plan = PlanOf(parallel, 8);
  CHECK(plan.data() == 2);
  CHECK(plan.num_stages() == 2 + 2 * 2);
  CHECK(plan.stage_begins[2] == encoder);
  std::vector<int> ranks;
  for (int stage = 0; stage < plan.num_stages(); ++stage) ranks.push_back(plan.RankOfStage(stage));
  CHECK(ranks == std::vector<int>{0, 1, 2, 3, 2, 3});
  CHECK(plan.StagesOf(3) == std::vector<int>{3, 5});
  CHECK(DescribePlan(plan).find("data 2 x pipeline 4 (2 for the encoder) x tensor 1") == 0);
  const std::string yaml = PlanToYaml(plan, {});
  CHECK(yaml.find("encoder: disaggregated\n  encoder_ranks: 2\n") != std::string::npos);
}

TEST_CASE("plan.yaml has a plan in the sections of a configuration") {
  Plan plan = InlinePlan({.data = 2, .pipeline = 2});
  plan.sharded = ShardedState::kOptimizer;
  plan.stage_begins = {0, 2, 5};
  plan.recompute = {Recompute::kNone, Recompute::kFull};
  CHECK(PlanToYaml(plan, {}) ==
        "parallel:\n  data: 2\n  pipeline: 2\n  tensor: 1\n  schedule: 1f1b\n  chunks: 1\n"
        "  zero: 1\n  zero_ranks: 2\n  sequence: false\n  stage_layers: [2, 3]\n"
        "balance:\n  recompute_layers: [none, full]\n");
  CHECK(PlanToYaml(plan, {}, /*runs_ahead=*/true).find("  prefetch: true\nbalance:") !=
        std::string::npos);
  PlanPrediction prediction;
  prediction.tiles = 9, prediction.tokens = 4096, prediction.global_batch = 16;
  prediction.step_s = 1.0 / 3, prediction.error_band = 0.05, prediction.peak_bytes = 1234567890;
  plan.encoder = EncoderPlacement::kDisaggregated;
  plan.components =
      DisaggregatedPlan({.data = 2, .pipeline = 2}, 1, /*encoder_layers=*/2).components;
  CHECK(PlanToYaml(plan, prediction) ==
        "parallel:\n  data: 2\n  pipeline: 2\n  tensor: 1\n  encoder: disaggregated\n"
        "  encoder_ranks: 1\n  schedule: 1f1b\n  chunks: 1\n  zero: 1\n  zero_ranks: 2\n"
        "  sequence: false\n  stage_layers: [2, 3]\n"
        "balance:\n  tiles: 9\n  tokens: 4096\n  recompute_layers: [none, full]\n"
        "train:\n  global_batch: 16\n"
        "predicted:\n  step_s: 0.333333\n  error_band: 0.05\n  peak_bytes: 1234567890\n");
  // Ranks that share out nothing are no setting.
  plan.sharded = ShardedState::kNone;
  CHECK(PlanToYaml(plan, {}).find("  zero: 0\n  sequence: false\n") != std::string::npos);
}

TEST_CASE("an encoder that cannot have ranks of its own is refused") {
  ParallelSection parallel = Disaggregated();
  parallel.pipeline = 1;
  CHECK_THROWS_WITH(PlanOf(parallel, 2),
                    "parallel.encoder: disaggregated leaves the language model no pipeline rank; "
                    "set parallel.pipeline to 2 or more");
  parallel.pipeline = 3;
  parallel.stage_layers = {3, 5, 8};
  CHECK_THROWS_WITH(PlanOf(parallel, 3),
                    Catch::Matchers::StartsWith("parallel.stage_layers: 3 layers on the ranks of "
                                                "the disaggregated encoder, vision and projector "
                                                "have "));
  parallel.stage_layers.clear();
  parallel.encoder_ranks = 99;
  CHECK_THROWS_WITH(PlanOf(parallel, 3),
                    Catch::Matchers::StartsWith("parallel.encoder_ranks: 99 stages for the "));
  parallel.encoder = "inline";
  CHECK_THROWS_WITH(PlanOf(parallel, 3),
                    Catch::Matchers::StartsWith("parallel.encoder_ranks: the encoder's layers are "
                                                "shared by all pipeline ranks"));
  RunConfig config;
  config.parallel = Disaggregated();
  ModelConfig text = PresetConfig("quickstart");
  text.has_vision = false;
  CHECK_THROWS_WITH(MakePlan(config, text, 2),
                    "parallel.encoder: disaggregated needs an image encoder; use inline");
}

ParallelSection InBubbles(const std::string& placement) {
  ParallelSection parallel;
  parallel.encoder = placement;
  parallel.pipeline = 4;
  return parallel;
}

TEST_CASE("an encoder in the bubbles has copies on all pipeline ranks") {
  const int encoder = NumEncoderLayers(PresetConfig("quickstart"));
  ParallelSection parallel = InBubbles("optimus");
  Plan plan = PlanOf(parallel, 8);
  CHECK(plan.data() == 2);
  CHECK(plan.encoder_copies() == 4);
  CHECK(plan.stage_begins.size() == 1 + 1 + 4);
  CHECK(plan.stage_begins[1] == encoder);
  parallel.encoder_ranks = 2;
  parallel.encoder_chunks = 2;
  parallel.schedule = "interleaved";
  plan = PlanOf(parallel, 8);
  CHECK(plan.encoder_copies() == 2);
  CHECK(plan.num_stages() == 2 * 4 + 4 * 2);
  CHECK(plan.stage_begins[4] == encoder);
  CHECK(DescribePlan(plan).find("data 2 x pipeline 4 x tensor 1, encoder optimus on 2 x 2 ranks") ==
        0);
  CHECK(PlanToYaml(plan, {}).find("encoder: optimus\n  encoder_ranks: 2\n  encoder_chunks: 2\n") !=
        std::string::npos);
}

TEST_CASE("copies of an encoder may have fewer tensor ranks than the language model") {
  ParallelSection parallel = InBubbles("optimus");
  parallel.pipeline = 2;
  parallel.tensor = 2;
  const Plan shared = PlanOf(parallel, 4);
  CHECK(shared.encoder_lanes() == 1);
  CHECK(PlanToYaml(shared, {}).find("  encoder_tensor: 2\n") != std::string::npos);
  parallel.encoder_tensor = 2;
  CHECK(PlanOf(parallel, 4) == shared);
  parallel.encoder_tensor = 1;
  const Plan plan = PlanOf(parallel, 4);
  CHECK(plan.encoder_lanes() == 2);
  CHECK(plan.encoder_copies() == 4);
  CHECK(PlanToYaml(plan, {}).find("  encoder_tensor: 1\n") != std::string::npos);
  parallel.tensor = 4;
  parallel.encoder_tensor = 3;
  CHECK_THROWS_WITH(PlanOf(parallel, 8),
                    "parallel.encoder_tensor: 3 tensor ranks of a copy of the encoder do not "
                    "divide the 4 of the language model; use a divisor of 4");
  parallel = ParallelSection();
  parallel.encoder_tensor = 1;
  CHECK_THROWS_WITH(PlanOf(parallel, 4),
                    "parallel.encoder_tensor: the encoder's layers are shared by all pipeline "
                    "ranks (inline); leave it out, or set parallel.encoder to another placement");
  parallel.encoder = "disaggregated";
  CHECK_THROWS_WITH(PlanOf(parallel, 4),
                    "parallel.encoder_tensor: a disaggregated encoder has the tensor ranks of the "
                    "language model; leave it out");
}

// What a configuration leaves out is planned anew.
TEST_CASE("a plan's sections pin what all ranks share as well") {
  const ModelConfig model = PresetConfig("quickstart");
  ParallelSection sharded;
  sharded.zero = 2;
  ParallelSection bubbles = InBubbles("optimus");
  bubbles.pipeline = 2;
  bubbles.tensor = 2;
  for (const auto& [parallel, shards, tensor] :
       {std::tuple(sharded, 8, std::optional<int>()), std::tuple(bubbles, 2, std::optional(2))}) {
    const Plan plan = PlanOf(parallel, 8);
    RunConfig config;
    ReadConfigText("plan.yaml", PlanToYaml(plan, {}), {}, config);
    CHECK(MakePlan(config, model, 8) == plan);
    const PlanPins pins = PlanPinsOf(config, model);
    CHECK(pins.zero_ranks == shards);
    CHECK(pins.encoder.tensor == tensor);
  }
}

TEST_CASE("an encoder that is not in the bubbles has no stream of its own, nor a fixed place") {
  ParallelSection stream = InBubbles("optimus"), fixed = stream;
  stream.encoder_stream = true;
  fixed.encoder_static = true;
  CHECK_NOTHROW(PlanOf(stream, 4));
  CHECK_NOTHROW(PlanOf(fixed, 4));
  for (const char* elsewhere : {"inline", "disaggregated"}) {
    stream.encoder = fixed.encoder = elsewhere;
    const std::string why = "an encoder that is " + std::string(elsewhere) +
                            " is not in the bubbles; set parallel.encoder to three_phase, dep, "
                            "optimus_coarse, optimus or auto, or leave parallel.";
    CHECK_THROWS_WITH(PlanOf(stream, 4), "parallel.encoder_stream: " + why + "encoder_stream out");
    CHECK_THROWS_WITH(PlanOf(fixed, 4), "parallel.encoder_static: " + why + "encoder_static out");
  }
}

TEST_CASE("an encoder that does not go into the bubbles is refused") {
  ParallelSection parallel = InBubbles("dep");
  parallel.encoder_ranks = 3;
  CHECK_THROWS_WITH(PlanOf(parallel, 4),
                    "parallel.encoder_ranks: copies of 3 ranks do not divide 4 pipeline ranks; use "
                    "a divisor of 4");
  parallel.encoder_ranks = 4;
  parallel.encoder_chunks = 64;
  CHECK_THROWS_WITH(PlanOf(parallel, 4),
                    Catch::Matchers::StartsWith("parallel.encoder_ranks: 256 stages for the "));
  parallel = InBubbles("dep");
  parallel.stage_layers = {3, 5, 1, 1, 1};
  CHECK_THROWS_WITH(PlanOf(parallel, 4), Catch::Matchers::StartsWith("parallel.stage_layers: "));
  parallel = InBubbles("dep");
  parallel.schedule = "schedule.txt";
  CHECK_THROWS_WITH(PlanOf(parallel, 4),
                    "parallel.encoder: dep lays the encoder into a schedule of its own making; "
                    "name a schedule in parallel.schedule, or leave it out");
  parallel = ParallelSection();
  parallel.encoder_chunks = 2;
  CHECK_THROWS_WITH(PlanOf(parallel, 4),
                    Catch::Matchers::StartsWith("parallel.encoder_chunks: the encoder's layers are "
                                                "shared by all pipeline ranks"));
}

RunConfig Prefetching(const std::vector<std::string>& freeze) {
  RunConfig config;
  config.parallel = InBubbles("optimus");
  config.parallel.prefetch = true;
  config.model.freeze = freeze;
  return config;
}

TEST_CASE("an encoder that runs a step ahead has the frozen layers alone") {
  const ModelConfig model = PresetConfig("quickstart");
  const int encoder = NumEncoderLayers(model);
  const Plan frozen = MakePlan(Prefetching({"vision", "projector"}), model, 4);
  CHECK(frozen.components.back().first_layer == encoder);
  const Plan trained = MakePlan(Prefetching({"vision"}), model, 4);
  CHECK(trained.components.back().first_layer == encoder - 1);  // the projector
  CHECK(trained.encoder_copies() == 4);
  CHECK(trained.stage_begins[1] == encoder - 1);
}

TEST_CASE("an encoder that cannot run a step ahead is refused") {
  const ModelConfig model = PresetConfig("quickstart");
  const auto refusal = [&](const RunConfig& config, const ModelConfig& of) -> std::string {
    try {
      MakePlan(config, of, 4);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  RunConfig config = Prefetching({"vision", "projector"});
  CHECK(refusal(config, model).empty());
  for (const char* elsewhere : {"inline", "disaggregated"}) {
    config.parallel.encoder = elsewhere;
    CHECK(refusal(config, model) ==
          "parallel.prefetch: an encoder that is " + std::string(elsewhere) +
              " runs in no bubbles; set parallel.encoder to three_phase, dep, optimus_coarse, "
              "optimus or auto, or leave parallel.prefetch out");
  }
  for (const Words& freeze : {Words{}, Words{"projector"}, Words{"llm"}}) {
    CHECK(refusal(Prefetching(freeze), model) ==
          "parallel.prefetch: vision is trained, or has adapters, and its features change in every "
          "step; freeze all of it (model.freeze), or leave parallel.prefetch out");
  }
  ModelConfig text = model;
  text.has_vision = false;
  CHECK(refusal(Prefetching({"vision"}), text) ==
        "parallel.prefetch: there is no image encoder; leave it out");
}

}  // namespace
}  // namespace equipoise
