#include "models/spec/tensor_parallel.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <thread>

#include "configs/base/error.h"
#include "models/layers/kv_cache.h"
#include "models/ops/cross_entropy.h"
#include "models/stages/model.h"
#include "models/weights/safetensors.h"
#include "models/weights/weights.h"
#include "tests/models/model_support.h"
#include "tests/parallel/run_ranks.h"

namespace equipoise {
namespace {

using testing::MakeModel;
using testing::PartOf;
using testing::RandomBatch;
using testing::RelativeError;
using testing::TestModel;
using testing::TinyInternVl;
using testing::TinyText;

using Tensors = std::map<std::string, at::Tensor>;

// Passes collectives on and writes down which were called, and by which thread.
class RecordingGroup : public Communicator {
 public:
  explicit RecordingGroup(Communicator& group) : group_(group) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  const std::string& name() const override { return group_.name(); }
  Work AllReduce(at::Tensor& tensor, ReduceOp op) override {
    Note("reduce " + std::to_string(static_cast<int>(op)), tensor);
    return group_.AllReduce(tensor, op);
  }
  Work AllGather(at::Tensor& output, const at::Tensor& input) override {
    Note("gather", input);
    return group_.AllGather(output, input);
  }
  Work ReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp op) override {
    return group_.ReduceScatter(output, input, op);
  }
  Work Broadcast(at::Tensor& tensor, int root) override { return group_.Broadcast(tensor, root); }
  Work Send(const at::Tensor& tensor, int peer) override { return group_.Send(tensor, peer); }
  Work Recv(at::Tensor& tensor, int peer) override { return group_.Recv(tensor, peer); }
  std::unique_ptr<Communicator> Split(int color, int key, const std::string& name) override {
    return group_.Split(color, key, name);
  }
  const std::vector<std::string>& calls() const { return calls_; }

 private:
  void Note(const std::string& what, const at::Tensor& tensor) {
    const bool here = std::this_thread::get_id() == thread_;
    calls_.push_back(what + " " + std::to_string(tensor.numel()) + (here ? "" : " elsewhere"));
  }
  Communicator& group_;
  const std::thread::id thread_ = std::this_thread::get_id();
  std::vector<std::string> calls_;
};

struct Case {
  ModelConfig config;
  std::vector<MicroBatch> batches;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::string> freeze = {};
  Recompute recompute = Recompute::kNone;
};

// What one rank has after a forward and backward pass of every micro-batch.
struct Result {
  std::vector<double> losses;
  std::vector<Parameter> parameters;  // without memory
  std::vector<at::Tensor> gradients;  // of the parameters
  std::vector<std::string> calls;
};

Result RunRank(const Case& c, const TensorParallel& tensor) {
  at::set_num_threads(1);  // as many threads as ranks are enough
  TestModel model = MakeModel(c.config, c.dtype, c.freeze, {}, tensor);
  for (const auto& layer : model.stage->layers()) layer->recompute = c.recompute;
  Result result;
  const int count = static_cast<int>(c.batches.size());
  for (int i = 0; i < count; ++i) {
    const MicroBatch& batch = c.batches[static_cast<size_t>(i)];
    result.losses.push_back(model.stage->Forward(i, batch, {}, 0.1).item<double>());
  }
  for (int i = 0; i < count; ++i) model.stage->Backward(i, {});
  for (const Parameter* p : model.stage->parameters()) {
    result.parameters.push_back(*p);
    result.gradients.push_back(p->gradient.defined() ? p->gradient.clone() : at::Tensor());
  }
  return result;
}

std::vector<Result> RunRanked(const Case& c, int ranks) {
  std::vector<Result> results(static_cast<size_t>(ranks));
  RunRanks(ranks, [&](Communicator& world) {
    RecordingGroup group(world);
    Result result = RunRank(c, {&group, world.rank(), world.size()});
    result.calls = group.calls();
    results[static_cast<size_t>(world.rank())] = std::move(result);
  });
  return results;
}

// Whole tensors from the owners' parts; undefined where frozen. Holders of the same part must have
// the same bits, and the parts must cover the tensor.
Tensors Assembled(const std::vector<Result>& results) {
  Tensors whole;
  for (const Result& rank : results) {
    for (size_t i = 0; i < rank.parameters.size(); ++i) {
      const Parameter& p = rank.parameters[i];
      at::Tensor& target = whole[p.name];
      if (!rank.gradients[i].defined()) continue;
      if (!target.defined()) target = at::full(p.whole_shape(), NAN);
      at::Tensor part = PartOf(target, p);
      INFO(p.name);
      if (!part.isnan().all().item<bool>()) {
        CHECK_FALSE(p.part.owner);
        CHECK(part.equal(rank.gradients[i]));
        continue;
      }
      CHECK(p.part.owner);
      part.copy_(rank.gradients[i]);
    }
  }
  for (const auto& [name, tensor] : whole) {
    INFO(name);
    CHECK((!tensor.defined() || tensor.isfinite().all().item<bool>()));
  }
  return whole;
}

double Norm(const at::Tensor& t) { return t.to(at::kDouble).norm().item<double>(); }

double GlobalNorm(const Tensors& tensors) {
  double squares = 0;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.defined()) squares += Norm(tensor) * Norm(tensor);
  }
  return std::sqrt(squares);
}

// In InternViT a key's bias adds the same to all scores of a query: without QK normalisation its
// gradient is rounding noise alone.
bool IsNoise(const std::string& name, const ModelConfig& config) {
  return name.find(".attention.k_proj.bias") != std::string::npos && !config.vision.use_qk_norm;
}

// All ranks exchange the same in the same order, on the thread that computes, and have one loss.
void CheckAgreement(const std::vector<Result>& results) {
  for (const Result& rank : results) {
    CHECK(rank.calls == results[0].calls);
    CHECK(rank.losses == results[0].losses);
    for (const std::string& call : rank.calls) {
      CHECK(call.find("elsewhere") == std::string::npos);
    }
  }
}

void CheckLosses(const Result& rank, const Result& alone, double bound) {
  REQUIRE(rank.losses.size() == alone.losses.size());
  for (size_t i = 0; i < alone.losses.size(); ++i) {
    CHECK(rank.losses[i] == Approx(alone.losses[i]).epsilon(bound));
  }
}

// Compares with one rank, over 2, 3 and 4 ranks.
void CheckCase(const Case& c) {
  const Result alone = RunRank(c, {});
  const Tensors expected = Assembled({alone});
  const double floor = 1e-6 * GlobalNorm(expected);
  for (const int ranks : {2, 3, 4}) {
    INFO(ranks << " ranks");
    const std::vector<Result> results = RunRanked(c, ranks);
    CheckAgreement(results);
    CheckLosses(results[0], alone, 1e-6);
    const Tensors gradients = Assembled(results);
    REQUIRE(gradients.size() == expected.size());
    for (const auto& [name, gradient] : gradients) {
      INFO(name);
      const at::Tensor& other = expected.at(name);
      REQUIRE(gradient.defined() == other.defined());
      if (!gradient.defined()) continue;
      if (IsNoise(name, c.config)) {
        CHECK(Norm(gradient) <= floor);
      } else {
        CHECK(RelativeError(gradient, other, floor) <= 2e-5);
      }
    }
  }
}

// In bf16 every gradient stays within 5e-2 of fp32, or is at most twice as far from it as that of
// one rank: each rank rounds its sums before they are added (measured: 1.64 times over 4 ranks).
void CheckBf16(Case c) {
  const Tensors exact = Assembled({RunRank(c, {})});
  const double floor = 1e-6 * GlobalNorm(exact);
  c.dtype = at::kBFloat16;
  const Result alone = RunRank(c, {});
  const Tensors rounded = Assembled({alone});
  for (const int ranks : {2, 3, 4}) {
    INFO(ranks << " ranks");
    const std::vector<Result> results = RunRanked(c, ranks);
    CheckAgreement(results);
    CheckLosses(results[0], alone, 1e-2);
    for (const auto& [name, gradient] : Assembled(results)) {
      if (IsNoise(name, c.config)) continue;
      INFO(name);
      const double noise = RelativeError(rounded.at(name), exact.at(name), floor);
      CHECK(RelativeError(gradient, exact.at(name), floor) <= std::max(5e-2, 2 * noise));
    }
  }
}

// As InternViT-6B in front of LLaMA: RMSNorm, QK normalisation, 5 heads over up to 4 ranks.
ModelConfig LargeVision() {
  ModelConfig config = TinyInternVl(/*large_form=*/true);
  config.vision.num_attention_heads = 5;
  config.vision.hidden_size = 40;
  config.vision.intermediate_size = 72;
  return config;
}

// As InternViT-300M in front of Qwen2, whose 4 heads share 2 key heads.
ModelConfig SmallVision() {
  ModelConfig config = TinyInternVl(/*large_form=*/false);
  config.vision.num_attention_heads = 6;
  config.vision.hidden_size = 48;
  return config;
}

ModelConfig GroupedLlama(int64_t key_heads) {
  ModelConfig config = TinyText("llama", /*tied=*/false);
  config.text.num_key_value_heads = key_heads;
  config.text.attention_bias = config.text.attention_output_bias = config.text.mlp_bias = true;
  return config;
}

// Two packed rows with different segments; the second has tiles, or both.
std::vector<MicroBatch> Batches(const ModelConfig& config) {
  const int64_t tiles = config.has_vision ? 2 : 0;
  return {RandomBatch(config, {20, 7, 1}, tiles, 50), RandomBatch(config, {11, 30}, tiles, 51)};
}

TEST_CASE("tensor-parallel ranks equal one, InternVL", "[models][cpu]") {
  const bool large = GENERATE(false, true);
  const auto recompute = GENERATE(Recompute::kNone, Recompute::kFull);
  const ModelConfig config = large ? LargeVision() : SmallVision();
  CheckCase({config, Batches(config), at::kFloat, {}, recompute});
}

TEST_CASE("tensor-parallel ranks equal one, text", "[models][cpu]") {
  const auto recompute = GENERATE(Recompute::kAttention, Recompute::kMlp);
  for (const ModelConfig& config :
       {TinyText("qwen2", /*tied=*/true), TinyText("qwen2", /*tied=*/false), GroupedLlama(2),
        GroupedLlama(1), GroupedLlama(4)}) {
    INFO(config.model_type << ", " << config.text.num_key_value_heads << " key heads");
    CheckCase({config, Batches(config), at::kFloat, {}, recompute});
  }
}

TEST_CASE("tensor-parallel ranks agree on micro-batches without tiles, tokens or targets",
          "[models][cpu]") {
  const ModelConfig config = GENERATE(SmallVision(), LargeVision());
  MicroBatch untrained = RandomBatch(config, {5}, 0, 2);
  untrained.targets.fill_(-100);
  const std::vector<MicroBatch> batches = {RandomBatch(config, {9, 4}, 0, 3),
                                           RandomBatch(config, {}, 0, 1), untrained,
                                           RandomBatch(config, {14}, 1, 4)};
  CheckCase({config, batches});
  CheckCase({config, batches, at::kFloat, {}, Recompute::kFull});
  // Nothing was exchanged for the encoder, nor for the empty one at all.
  const Case text = {config, {batches[0]}}, empty = {config, {batches[1]}};
  const Case with_tiles = {config, {batches[3]}};
  CHECK(RunRanked(empty, 2)[0].calls.empty());
  CHECK(RunRanked(text, 2)[0].calls.size() < RunRanked(with_tiles, 2)[0].calls.size());
}

TEST_CASE("tensor-parallel ranks agree with frozen modules", "[models][cpu]") {
  using Names = std::vector<std::string>;
  const Names freeze =
      GENERATE(Names{"vision"}, Names{"vision", "projector"}, Names{"llm"}, Names{"projector"},
               Names{"vision", "llm"}, Names{"vision", "projector", "llm"});
  for (const ModelConfig& config : {SmallVision(), LargeVision()}) {
    CheckCase({config, Batches(config), at::kFloat, freeze});
    CheckCase({config, Batches(config), at::kFloat, freeze, Recompute::kAttention});
  }
}

TEST_CASE("tensor-parallel ranks stay near one in bf16", "[models][cpu]") {
  for (const ModelConfig& config : {SmallVision(), LargeVision(), TinyText("qwen2", true)}) {
    CheckBf16({config, Batches(config)});
  }
}

TEST_CASE("logits are gathered on every tensor-parallel rank", "[models][cpu]") {
  for (const ModelConfig& config : {LargeVision(), TinyText("qwen2", /*tied=*/true)}) {
    MicroBatch batch = Batches(config)[0];
    const double loss = MakeModel(config).stage->Evaluate(batch, {}).item<double>();
    std::vector<double> losses(4);
    RunRanks(4, [&](Communicator& world) {
      TestModel model = MakeModel(config, at::kFloat, {}, {}, {&world, world.rank(), world.size()});
      losses[static_cast<size_t>(world.rank())] = model.stage->Evaluate(batch, {}).item<double>();
    });
    for (const double l : losses) CHECK(l == Approx(loss).epsilon(1e-6));

    batch.targets = at::Tensor();
    const at::Tensor expected = MakeModel(config).stage->Evaluate(batch, {});
    for (const int ranks : {2, 3, 4}) {
      std::vector<at::Tensor> logits(static_cast<size_t>(ranks));
      RunRanks(ranks, [&](Communicator& world) {
        TestModel model =
            MakeModel(config, at::kFloat, {}, {}, {&world, world.rank(), world.size()});
        logits[static_cast<size_t>(world.rank())] = model.stage->Evaluate(batch, {});
      });
      for (const at::Tensor& l : logits) {
        REQUIRE(l.sizes() == expected.sizes());
        CHECK(l.equal(logits[0]));
        CHECK(RelativeError(l, expected) < 1e-5);
      }
    }
  }
}

// Two chunks on every rank, though only one rank's share of the vocabulary would make them so.
TEST_CASE("split cross entropy goes through its rows in the same chunks", "[models][cpu]") {
  // The noise of the products over this vocabulary is the processor's: MKL adds up 16 columns to
  // 1e-5 on AMD's, fewer to 2e-4 alone.
  constexpr int64_t kRows = 258, kVocabulary = 2 * 65536 + 1, kHidden = 16;
  const at::Tensor ids = at::arange(kRows, at::kLong).mul_(508);  // some on either rank
  const at::Tensor rows = testing::Normal({kRows, kHidden}, 6);
  const at::Tensor whole = testing::Normal({kVocabulary, kHidden}, 5);
  struct Answer {
    double loss = 0;
    at::Tensor x_gradient, weight_gradient;
    std::vector<std::string> calls;
  };
  const auto run = [&](Communicator* group, const TensorPart& part, int64_t size) {
    Parameter weight;
    weight.name = "head";
    weight.shape = {size, kHidden};
    weight.part = part;
    FlatParameters flat({&weight}, at::kFloat);
    weight.master.copy_(PartOf(whole, weight));
    const at::Tensor x = rows.clone().requires_grad_();
    const at::Tensor loss =
        ops::LinearCrossEntropy(x, {ids, {}, 0.25}, weight, /*in_backward=*/true, group);
    loss.backward();
    return Answer{loss.item<double>(), x.grad(), weight.gradient.clone(), {}};
  };
  const Answer alone = run(nullptr, {}, kVocabulary);
  std::vector<Answer> answers(2);
  RunRanks(2, [&](Communicator& world) {
    RecordingGroup group(world);
    const Share share = ShareUnits({&group, world.rank(), 2}, kVocabulary, 1, "rows");
    Answer& answer = answers[static_cast<size_t>(world.rank())];
    answer = run(&group, {0, share.begin, share.whole, true}, share.size);
    answer.calls = group.calls();
  });
  CHECK(answers[0].calls == std::vector<std::string>{"reduce 1 256", "reduce 0 512", "reduce 1 2",
                                                     "reduce 0 4", "reduce 0 4128"});
  CHECK(answers[1].calls == answers[0].calls);
  const at::Tensor w = whole.to(at::kDouble);
  at::Tensor exact = rows.to(at::kDouble).mm(w.t()).softmax(1);
  exact.scatter_add_(1, ids.unsqueeze(1), at::full({kRows, 1}, -1.0, exact.options()));
  exact = exact.mm(w).mul_(0.25);
  const double noise = RelativeError(alone.x_gradient, exact);
  CHECK(noise < 1e-4);
  for (const Answer& answer : answers) {
    CHECK(answer.loss == Approx(alone.loss).epsilon(1e-6));
    CHECK(RelativeError(answer.x_gradient, exact) < std::max(1e-5, 2 * noise));
  }
  const at::Tensor gradient = at::cat({answers[0].weight_gradient, answers[1].weight_gradient});
  CHECK(RelativeError(gradient, alone.weight_gradient) < 1e-5);
}

TEST_CASE("tensor-parallel ranks decode with their heads of the cache", "[models][cpu]") {
  const ModelConfig config = GroupedLlama(2);
  MicroBatch batch = RandomBatch(config, {12}, 0, 9);
  batch.targets = at::Tensor();
  const auto decode = [&](const TensorParallel& tensor) {
    TestModel model = MakeModel(config, at::kFloat, {}, {}, tensor);
    KvCache cache;
    Decoding decoding{{&cache}, {0}, /*greedy=*/false};
    at::Tensor logits;
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 10}, {10, 11}, {11, 12}}) {
      MicroBatch part = batch;
      part.input_ids = batch.input_ids.slice(0, begin, end);
      part.position_ids = batch.position_ids.slice(0, begin, end);
      part.cu_seqlens = {0, end - begin};
      decoding.cached = {begin};
      part.decoding = &decoding;
      logits = model.stage->Evaluate(part, {});
    }
    return logits;
  };
  const at::Tensor expected = decode({});
  for (const int ranks : {2, 3, 4}) {
    std::vector<at::Tensor> logits(static_cast<size_t>(ranks));
    RunRanks(ranks, [&](Communicator& world) {
      const auto rank = static_cast<size_t>(world.rank());
      logits[rank] = decode({&world, world.rank(), world.size()});
    });
    for (const at::Tensor& l : logits) CHECK(RelativeError(l, expected) < 1e-5);
  }
}

// Every rank's masters as `fill` leaves them, next to each other.
template <class Fill>
void CheckWeights(const ModelConfig& config, const Fill& fill) {
  Tensors whole;
  TestModel alone = MakeModel(config);
  fill(alone.stage->parameters());
  for (const Parameter* p : alone.stage->parameters()) whole[p->name] = p->stored();
  for (const int ranks : {2, 3, 4}) {
    for (int rank = 0; rank < ranks; ++rank) {
      INFO("rank " << rank << " of " << ranks);
      TestModel model = MakeModel(config, at::kFloat, {}, {}, {nullptr, rank, ranks});
      for (const Parameter* p : model.stage->parameters()) p->stored().fill_(NAN);
      fill(model.stage->parameters());
      for (const Parameter* p : model.stage->parameters()) {
        INFO(p->name);
        CHECK(p->whole_shape() == whole.at(p->name).sizes().vec());
        CHECK(p->stored().equal(PartOf(whole.at(p->name), *p)));
      }
    }
  }
}

TEST_CASE("initial weights are the same numbers however they are split", "[models][cpu]") {
  for (ModelConfig config : {SmallVision(), LargeVision(), TinyText("qwen2", true)}) {
    config.text.pad_token_id = 40;
    CheckWeights(config, [&](const std::vector<Parameter*>& parameters) {
      InitializeWeights(parameters, config, /*seed=*/7);
    });
  }
}

TEST_CASE("a rank reads its part of a folder's weights", "[models][cpu]") {
  const auto folder =
      std::filesystem::temp_directory_path() / ("tensor_parallel_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const ModelConfig& config : {SmallVision(), LargeVision(), TinyText("qwen2", true)}) {
      Tensors file;
      const TestModel source = MakeModel(config);
      for (const Parameter* p : source.stage->parameters()) file[p->name] = p->stored().to(dtype);
      WriteSafetensors((folder / "model.safetensors").string(), {file.begin(), file.end()});
      CheckWeights(config, [&](const std::vector<Parameter*>& parameters) {
        LoadWeights(parameters, config, folder.string());
      });
    }
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("more tensor-parallel ranks than heads are refused", "[models][cpu]") {
  CHECK_THROWS_AS(BuildLayers(LargeVision(), {}, {nullptr, 0, 6}), ConfigError);
  CHECK_THROWS_WITH(BuildLayers(LargeVision(), {}, {nullptr, 0, 6}),
                    "parallel.tensor: 6 ranks cannot share 5 attention heads of the vision model; "
                    "use at most 5");
  CHECK_THROWS_WITH(BuildLayers(GroupedLlama(2), {}, {nullptr, 0, 5}),
                    "parallel.tensor: 5 ranks cannot share 4 attention heads of the language "
                    "model; use at most 4");
}

}  // namespace
}  // namespace equipoise
