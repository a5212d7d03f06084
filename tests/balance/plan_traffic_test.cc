// The bytes that ranks send in a step, against formulas written out by hand.
#include "balance/search/plan_traffic.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "models/families/families.h"
#include "models/families/presets.h"
#include "tests/models/load_of.h"

namespace equipoise {
namespace {

constexpr double kTokens = 3000, kTiles = 6;  // of a micro-batch with pictures

struct Case {
  PlanRequest request;
  Plan plan;

  explicit Case(const Degrees& degrees, int nodes = 1) {
    request.model = PresetConfig("internvl2-1b");
    request.model.text.tie_word_embeddings = false;
    ClusterConfig config;
    config.preset = "a100-80g";
    config.nodes = nodes;
    request.cluster = MakeCluster(config);
    plan = InlinePlan(degrees);
    request.ranks = plan.num_ranks();
    const int layers = static_cast<int>(LayerSpecs(request.model).size());
    for (int rank = 0; rank <= degrees.pipeline; ++rank) {
      plan.stage_begins.push_back(layers * rank / degrees.pipeline);
    }
    plan.recompute.assign(static_cast<size_t>(layers), Recompute::kNone);
    // 12 micro-batches, a third of them text alone.
    request.workload.steps.emplace_back();
    for (int i = 0; i < 12; ++i) {
      request.workload.steps.front().push_back(LoadOf(request.model, i % 3 == 2 ? 0 : 6, 3000));
    }
  }

  CostModel costs() const {
    return CostModel(request.model, request.cluster, request.CostOptions(plan));
  }
  RankTraffic traffic() const { return TrafficOf(request, costs(), plan); }
  // Parameters of the model's components, all of it by default.
  double Parameters(const std::vector<std::string>& components = {"vision", "projector",
                                                                  "llm"}) const {
    double count = 0;
    for (const LayerSpec& spec : LayerSpecs(request.model)) {
      if (IsAmong(spec, components)) count += static_cast<double>(spec.parameter_count());
    }
    return count;
  }
  int First(const std::string& kind) const {
    const std::vector<LayerSpec> specs = LayerSpecs(request.model);
    for (size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].kind == kind) return static_cast<int>(i);
    }
    return -1;
  }
};

TEST_CASE("data ranks send what the stage of ZeRO shares out", "[plan_traffic][cpu]") {
  // On 4 ranks with 3 micro-batches each: 3/4 of gradients of 4 bytes and weights of 2.
  const struct {
    ShardedState state;
    double bytes;  // of a parameter, before the 3/4
  } rows[] = {
      {ShardedState::kNone, 2 * 4},
      {ShardedState::kOptimizer, 4 + 2},
      {ShardedState::kGradients, 3 * 4 + 2},
      {ShardedState::kParameters, 3 * 4 + 3 * 2 * 2},
  };
  Case c({.data = 4});
  for (const auto& row : rows) {
    INFO("ZeRO " << ZeroStage(row.state));
    c.plan.sharded = row.state;
    CHECK(c.traffic().within_node_bytes == Approx(0.75 * row.bytes * c.Parameters()));
    CHECK(c.traffic().between_nodes_bytes == 0);
  }
  c.plan = Case({.data = 1}).plan;
  CHECK(c.traffic().total() == 0);
}

TEST_CASE("copies of shards are summed between nodes, once a step", "[plan_traffic][cpu]") {
  // On 16 ranks of two nodes: 7/8 of what is moved within a node, and a sum of 1/8 of the gradients
  // over two copies, of which each sends it once on the whole.
  const struct {
    ShardedState state;
    double bytes;  // of a parameter within a node, before the 7/8
  } rows[] = {
      {ShardedState::kOptimizer, 4 + 2},
      {ShardedState::kGradients, 0.75 * 4 + 2},
      {ShardedState::kParameters, 0.75 * (4 + 2 * 2)},
  };
  Case c({.data = 16}, /*nodes=*/2);
  c.plan.zero_ranks = 8;
  for (const auto& row : rows) {
    INFO("ZeRO " << ZeroStage(row.state));
    c.plan.sharded = row.state;
    CHECK(c.traffic().within_node_bytes == Approx(7.0 / 8 * row.bytes * c.Parameters()));
    CHECK(c.traffic().between_nodes_bytes == Approx(4.0 / 8 * c.Parameters()));
  }
}

TEST_CASE("what is frozen is gathered alone, once where nothing goes back through it",
          "[plan_traffic][cpu]") {
  Case c({.data = 4});
  c.request.frozen = {"vision"};
  const double frozen = c.Parameters({"vision"}), trained = c.Parameters({"projector", "llm"});
  c.plan.sharded = ShardedState::kOptimizer;
  CHECK(c.traffic().total() == Approx(0.75 * 6 * trained));
  c.plan.sharded = ShardedState::kParameters;
  CHECK(c.traffic().total() == Approx(0.75 * 3 * (8 * trained + 2 * frozen)));
  c.request.frozen = {"llm"};  // gradients go through it to the projector
  CHECK(c.traffic().total() ==
        Approx(0.75 * 3 * (8 * c.Parameters({"vision", "projector"}) + 4 * c.Parameters({"llm"}))));
}

TEST_CASE("of a ring over nodes, links that leave a node are counted apart",
          "[plan_traffic][cpu]") {
  Case c({.data = 12}, /*nodes=*/2);
  c.request.cluster.devices_per_node = 6;
  c.plan.sharded = ShardedState::kOptimizer;
  const double sent = 11.0 / 12 * 6 * c.Parameters();
  CHECK(c.traffic().total() == Approx(sent));
  CHECK(c.traffic().between_nodes_bytes == Approx(sent * 2 / 12));  // 2 of 12 links
  // With two pipeline ranks to a data rank, the ranks of a ring are every second one: 3 in a node.
  Case pipelined({.data = 6, .pipeline = 2}, /*nodes=*/2);
  pipelined.request.cluster.devices_per_node = 6;
  CHECK(pipelined.traffic().between_nodes_bytes ==
        Approx(5.0 / 6 * 8 * pipelined.Parameters() / 2 * 2 / 6));
}

TEST_CASE("a stage sends its rows on, and gets their gradients back", "[plan_traffic][cpu]") {
  Case c({.pipeline = 2});
  const std::vector<LayerSpec> specs = LayerSpecs(c.request.model);
  const int layers = static_cast<int>(specs.size());
  const auto text = static_cast<double>(c.request.model.text.hidden_size);
  const int block = c.First(kDecoderBlock);
  c.plan.stage_begins = {0, block + 3, layers};
  // Rank 0 sends 12 micro-batches on, rank 1 their gradients: each the same in bf16.
  const double rows = 12 * kTokens * text * 2;
  CHECK(c.traffic().within_node_bytes == Approx(rows));
  CHECK(c.traffic().between_nodes_bytes == 0);
  c.request.cluster.devices_per_node = 1;
  CHECK(c.traffic().between_nodes_bytes == Approx(rows));
  CHECK(c.traffic().within_node_bytes == 0);
  // Nothing before the cut is trained: no gradients go back.
  c.request.frozen = {"vision", "projector", "llm"};
  CHECK(c.traffic().total() == Approx(rows / 2));
  // Cut in the encoder: only the two thirds with pictures have rows there.
  c.request.frozen.clear();
  c.plan.stage_begins = {0, 5, layers};
  const auto vision = static_cast<double>(c.request.model.vision.hidden_size);
  const auto patches = static_cast<double>(LoadOf(c.request.model, 6, 3000).patches);
  CHECK(patches >= kTiles * 1024);
  CHECK(c.traffic().total() == Approx(8 * patches * vision * 2));
}

TEST_CASE("a tied weight's gradients are added over the stages that hold it",
          "[plan_traffic][cpu]") {
  Case c({.pipeline = 2});
  c.plan.stage_begins[1] = c.First(kTokenEmbedding) + 3;
  const double apart = c.traffic().total();
  c.request.model.text.tie_word_embeddings = true;
  const auto tied = static_cast<double>(c.costs().tied_parameters());
  REQUIRE(tied > 1e8);
  CHECK(c.traffic().total() - apart == Approx(4 * tied));
}

TEST_CASE("tensor ranks sum twice in a block and pass, and again what they recompute",
          "[plan_traffic][cpu]") {
  Case c({.tensor = 2});
  const ModelConfig& model = c.request.model;
  const auto text = static_cast<double>(model.text.hidden_size);
  const auto vision = static_cast<double>(model.vision.hidden_size);
  const LayerLoad load = LoadOf(model, 6, 3000);
  const double tokens = 12 * kTokens, patches = 8.0 * static_cast<double>(load.patches);
  const double images = 8.0 * static_cast<double>(load.image_tokens);
  // On two ranks a sum of n bytes sends n: half to reduce, half to gather.
  const auto blocks = static_cast<double>(model.text.num_hidden_layers);
  const auto encoder = static_cast<double>(model.vision.num_hidden_layers);
  const double merged = vision * 4;  // a projector's input: 2 x 2 patches
  const double sums =
      2 * (4 * blocks * tokens * text + 4 * encoder * patches * vision + images * (text + merged) +
           tokens * text /* embedding */ + tokens * text /* head */) +
      4 * 3 * tokens /* softmax */;
  CHECK(c.traffic().within_node_bytes == Approx(sums));
  const auto block = static_cast<size_t>(c.First(kDecoderBlock));
  const double before = c.traffic().total();
  c.plan.recompute[block] = Recompute::kAttention;
  CHECK(c.traffic().total() - before == Approx(2 * tokens * text));
  c.plan.recompute[block] = Recompute::kFull;
  CHECK(c.traffic().total() - before == Approx(2 * 2 * tokens * text));
}

TEST_CASE("tensor ranks that share out rows gather them once more for the weights' gradients",
          "[plan_traffic][cpu]") {
  Case c({.tensor = 2});
  const double whole = c.traffic().total();
  c.request.frozen = {"llm"};  // nothing of the language model is trained
  const double whole_frozen = c.traffic().total();
  c.request.frozen.clear();
  c.plan.sequence = true;
  const auto text = static_cast<double>(c.request.model.text.hidden_size);
  const auto blocks = static_cast<double>(c.request.model.text.num_hidden_layers);
  // Of two ranks a gather of n bytes sends half of them: two gathers a block, in bf16.
  const double gathered = blocks * 2 * 12 * kTokens * text * 2 / 2;
  const double shared = c.traffic().total();
  CHECK(shared > whole + 0.8 * gathered);
  CHECK(shared < whole + 1.2 * gathered);
  c.request.frozen = {"llm"};
  CHECK(c.traffic().total() < whole_frozen + 0.2 * gathered);
}

TEST_CASE("copies of an encoder in the bubbles add their gradients", "[plan_traffic][cpu]") {
  Case c({.pipeline = 4});
  const int all = static_cast<int>(LayerSpecs(c.request.model).size());
  const int own = c.First(kTokenEmbedding);
  c.plan = PlanInBubbles({.pipeline = 4}, {EncoderPlacement::kOptimus, 1, 1, own});
  c.plan.stage_begins = {0, own, own + 6, own + 12, own + 18, all};
  REQUIRE(c.plan.encoder_copies() == 4);
  const double sums = 2 * 3.0 / 4 * 4 * c.Parameters({"vision", "projector"});
  // The copy on the rank of the first text stage sends nothing, three quarters of the rows go from
  // the others, and as much comes back; text stages send three times.
  const auto text = static_cast<double>(c.request.model.text.hidden_size);
  const LayerLoad load = LoadOf(c.request.model, 6, 3000);
  const double images = 8.0 * static_cast<double>(load.image_tokens);
  const double sent = 2 * 2 * (0.75 * images * text + 3 * 12 * kTokens * text);
  CHECK(c.traffic().total() == Approx(sums + sent / 4));
  // With ZeRO they share out its state, and gather its weights in 16 bits.
  c.plan.sharded = ShardedState::kOptimizer;
  const double gathered = 3.0 / 4 * 2 * c.Parameters({"vision", "projector"});
  CHECK(c.traffic().total() == Approx(sums + gathered + sent / 4));
}

TEST_CASE("whole copies of an encoder on each of two tensor ranks", "[plan_traffic][cpu]") {
  Case c({.pipeline = 2, .tensor = 2});
  const int all = static_cast<int>(LayerSpecs(c.request.model).size());
  const int own = c.First(kTokenEmbedding);
  c.plan = PlanInBubbles({.pipeline = 2, .tensor = 2}, {EncoderPlacement::kOptimus, 1, 1, own, 1});
  c.plan.stage_begins = {0, own, own + 12, all};
  REQUIRE(c.plan.encoder_copies() == 4);
  const auto text = static_cast<double>(c.request.model.text.hidden_size);
  const auto blocks = static_cast<double>(c.request.model.text.num_hidden_layers);
  const LayerLoad load = LoadOf(c.request.model, 6, 3000);
  const double images = 8.0 * static_cast<double>(load.image_tokens), tokens = 12 * kTokens;
  const double copies = 2 * 3.0 / 4 * 4 * c.Parameters({"vision", "projector"});
  // Of the language model alone, each pipeline rank its layers'.
  const double sums = (2 * (4 * blocks * tokens * text + 2 * tokens * text) + 4 * 3 * tokens) / 2;
  // Half of the rows come from the other pipeline rank, and their gradient goes back, each by the
  // tensor rank that has made them; all of them to the tensor rank beside.
  const double rows = 2 * images * text * (0.5 * 2 + 1);
  const double boundary = 2 * 2 * 2 * tokens * text;
  CHECK(c.traffic().total() == Approx(copies + sums + (rows + boundary) / 4));
}

}  // namespace
}  // namespace equipoise
