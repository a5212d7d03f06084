#include "models/stages/stage.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <numeric>

#include "models/families/resolve_unfreeze.h"
#include "tests/models/model_support.h"

namespace equipoise {
namespace {

using testing::MakeModel;
using testing::RandomBatch;
using testing::TestModel;
using testing::TinyInternVl;
using testing::TinyText;

using Gradients = std::map<std::string, at::Tensor>;

bool SameBits(const Gradients& a, const Gradients& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, gradient] : a) {
    const at::Tensor& other = b.at(name);
    if (gradient.defined() != other.defined()) return false;
    if (gradient.defined() && !gradient.equal(other)) return false;
  }
  return true;
}

std::vector<MicroBatch> Batches(const ModelConfig& config, int count) {
  std::vector<MicroBatch> batches;
  for (int i = 0; i < count; ++i) {
    batches.push_back(RandomBatch(config, {20, 7 + i, 1}, config.has_vision ? 2 : 0,
                                  uint64_t{50} + static_cast<uint64_t>(i)));
  }
  return batches;
}

// Runs ops such as "F0 F1 B0 B1".
Gradients Run(TestModel& model, const std::vector<MicroBatch>& batches, const std::string& ops) {
  for (size_t i = 0; i < ops.size(); i += 3) {
    const int id = ops[i + 1] - '0';
    if (ops[i] == 'F') {
      model.stage->Forward(id, batches[static_cast<size_t>(id)], {}, 0.1);
    } else if (ops[i] == 'B') {
      model.stage->Backward(id, {});
    } else if (ops[i] == 'I') {
      model.stage->BackwardInput(id, {});
    } else {
      model.stage->BackwardWeights(id);
    }
  }
  return model.gradients();
}

TEST_CASE("recompute changes no bit of a gradient", "[models][cpu]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const bool tied = GENERATE(false, true);
  const auto recompute = GENERATE(Recompute::kAttention, Recompute::kMlp, Recompute::kElementwise,
                                  Recompute::kFull, Recompute::kOffload, Recompute::kFullOffload);
  const ModelConfig config = TinyText("qwen2", tied);
  const auto batches = Batches(config, 2);
  TestModel plain = MakeModel(config, dtype), again = MakeModel(config, dtype);
  for (const auto& layer : again.stage->layers()) layer->recompute = recompute;
  const Gradients expected = Run(plain, batches, "F0 B0 F1 B1");
  CHECK(expected.at("model.embed_tokens.weight").abs().sum().item<double>() > 0);
  CHECK(SameBits(Run(again, batches, "F0 B0 F1 B1"), expected));
}

TEST_CASE("a layer keeps what its recompute leaves", "[models][cpu]") {
  const ModelConfig config = TinyInternVl(false);
  const auto batches = Batches(config, 1);
  // Of embedding, two blocks, projector; embedding, two blocks, head: a block in halves counts
  // twice.
  for (const auto& [recompute, kept] : std::map<Recompute, size_t>{{Recompute::kNone, 8},
                                                                   {Recompute::kAttention, 12},
                                                                   {Recompute::kMlp, 12},
                                                                   {Recompute::kElementwise, 8},
                                                                   {Recompute::kFull, 8},
                                                                   {Recompute::kOffload, 8},
                                                                   {Recompute::kFullOffload, 8}}) {
    TestModel model = MakeModel(config);
    for (const auto& layer : model.stage->layers()) layer->recompute = recompute;
    std::vector<size_t> walked;
    model.stage->on_layer_backward = [&](int, size_t index) { walked.push_back(index); };
    model.stage->Forward(0, batches[0], {}, 1.0);
    INFO(ToString(recompute));
    CHECK(model.stage->num_kept() == kept);
    model.stage->Backward(0, {});
    CHECK(walked == std::vector<size_t>{7, 6, 5, 4, 3, 2, 1, 0});
  }
}

TEST_CASE("activations of blocks lie in host memory until backward", "[models][cpu]") {
  const auto recompute = GENERATE(Recompute::kOffload, Recompute::kFullOffload);
  const ModelConfig config = TinyInternVl(false);
  const auto batches = Batches(config, 2);
  TestModel model = MakeModel(config), plain = MakeModel(config);
  for (const auto& layer : model.stage->layers()) layer->recompute = recompute;
  model.stage->Forward(0, batches[0], {}, 1.0);
  const int64_t first = model.stage->offloaded_bytes();
  CHECK(first > 0);
  model.stage->Forward(1, batches[1], {}, 1.0);
  CHECK(model.stage->offloaded_bytes() > first);
  model.stage->Backward(0, {});
  model.stage->Backward(1, {});
  CHECK(model.stage->offloaded_bytes() == 0);
  plain.stage->Forward(0, batches[0], {}, 1.0);
  CHECK(plain.stage->offloaded_bytes() == 0);
}

TEST_CASE("interleaving forward and backward passes changes no bit", "[models][cpu]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const bool tied = GENERATE(false, true);
  const ModelConfig config = TinyText("llama", tied);
  const auto batches = Batches(config, 3);
  TestModel a = MakeModel(config, dtype), b = MakeModel(config, dtype),
            c = MakeModel(config, dtype);
  const Gradients expected = Run(a, batches, "F0 B0 F1 B1 F2 B2");
  CHECK(SameBits(Run(b, batches, "F0 F1 F2 B0 B1 B2"), expected));
  CHECK(SameBits(Run(c, batches, "F0 F1 B0 F2 B1 B2"), expected));
}

TEST_CASE("a backward in two halves changes no bit", "[models][cpu]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const auto recompute = GENERATE(Recompute::kNone, Recompute::kElementwise, Recompute::kFull,
                                  Recompute::kOffload, Recompute::kFullOffload);
  for (const ModelConfig& config : {TinyText("qwen2", true), TinyInternVl(false)}) {
    const auto batches = Batches(config, 3);
    TestModel whole = MakeModel(config, dtype), halves = MakeModel(config, dtype),
              later = MakeModel(config, dtype);
    for (TestModel* model : {&whole, &halves, &later}) {
      for (const auto& layer : model->stage->layers()) layer->recompute = recompute;
    }
    const Gradients expected = Run(whole, batches, "F0 B0 F1 B1 F2 B2");
    CHECK(SameBits(Run(halves, batches, "F0 I0 W0 F1 I1 W1 F2 I2 W2"), expected));
    CHECK(SameBits(Run(later, batches, "F0 F1 I0 F2 I1 W0 I2 W1 W2"), expected));
  }
}

TEST_CASE("the second half tells of layers, and then nothing is left", "[models][cpu]") {
  const ModelConfig config = TinyInternVl(false);
  const auto batches = Batches(config, 1);
  TestModel model = MakeModel(config);
  std::vector<size_t> walked;
  model.stage->on_layer_backward = [&](int, size_t index) { walked.push_back(index); };
  model.stage->Forward(0, batches[0], {}, 1.0);
  model.stage->BackwardInput(0, {});
  CHECK(walked.empty());
  CHECK(model.stage->num_kept() == 0);
  CHECK(model.stage->num_deferred() > 8);
  // Of a block, what the first half has made is there, what it has left is not.
  const Gradients first = model.gradients();
  const std::string block = "language_model.model.layers.0.";
  CHECK(first.at(block + "input_layernorm.weight").abs().sum().item<double>() > 0);
  CHECK(first.at(block + "mlp.up_proj.weight").abs().sum().item<double>() == 0);
  model.stage->BackwardWeights(0);
  CHECK(walked == std::vector<size_t>{7, 6, 5, 4, 3, 2, 1, 0});
  CHECK(model.stage->num_deferred() == 0);
  CHECK(model.gradients().at(block + "mlp.up_proj.weight").abs().sum().item<double>() > 0);
  for (const Parameter* parameter : model.stage->parameters()) CHECK(!parameter->deferred);
}

TEST_CASE("layers are walked backwards one by one and keep nothing afterwards", "[models][cpu]") {
  const ModelConfig config = TinyText("qwen2", false);
  const auto batches = Batches(config, 1);
  TestModel model = MakeModel(config);
  std::vector<size_t> walked, kept;
  model.stage->on_layer_backward = [&](int id, size_t index) {
    CHECK(id == 0);
    walked.push_back(index);
    kept.push_back(model.stage->num_kept());
  };
  model.stage->Forward(0, batches[0], {}, 1.0);
  CHECK(model.stage->num_kept() == 4);
  model.stage->Backward(0, {});
  CHECK(walked == std::vector<size_t>{3, 2, 1, 0});
  CHECK(model.stage->num_kept() == 0);
}

TEST_CASE("two stages give the bits of one", "[models][cpu]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const ModelConfig config = TinyText("qwen2", false);
  const auto batches = Batches(config, 1);
  TestModel whole = MakeModel(config, dtype);
  const Gradients expected = Run(whole, batches, "F0 B0");
  const at::Tensor loss = whole.stage->Evaluate(batches[0], {});

  testing::TestModel front = MakeModel(config, dtype, {}, {0, 2});
  testing::TestModel back = MakeModel(config, dtype, {}, {2, 4});
  Stage &first = *front.stage, &second = *back.stage;
  at::Tensor boundary = first.Forward(0, batches[0], {}, 0.1).clone().requires_grad_();
  CHECK(second.Forward(0, batches[0], boundary, 0.1).item<double>() ==
        Approx(0.1 * loss.item<double>()));
  const at::Tensor gradient = second.Backward(0, {});
  REQUIRE(gradient.defined());
  CHECK_FALSE(first.Backward(0, gradient).defined());
  for (const Stage* stage : {&first, &second}) {
    for (const Parameter* p : stage->parameters()) {
      INFO(p->name);
      CHECK(p->gradient.equal(expected.at(p->name)));
    }
  }
}

TEST_CASE("a frozen stage waits for no backward", "[models][cpu]") {
  const ModelConfig config = TinyText("qwen2", true);
  TestModel model = MakeModel(config);
  for (Parameter* parameter : model.stage->parameters()) parameter->trainable = false;
  const MicroBatch batch = RandomBatch(config, {5}, 0, 2);
  const double loss = model.stage->Forward(3, batch, {}, 1.0).item<double>();
  CHECK(model.stage->Forward(3, batch, {}, 1.0).item<double>() == loss);
  CHECK_FALSE(model.stage->Backward(3, {}).defined());
}

TEST_CASE("micro-batches without tokens or targets pass through", "[models][cpu]") {
  const ModelConfig config = TinyText("qwen2", true);
  TestModel model = MakeModel(config);
  MicroBatch empty = RandomBatch(config, {}, 0, 1);
  MicroBatch untrained = RandomBatch(config, {5}, 0, 2);
  untrained.targets.fill_(-100);
  size_t walked = 0;
  model.stage->on_layer_backward = [&](int, size_t) { ++walked; };
  for (const MicroBatch* batch : {&empty, &untrained}) {
    CHECK(model.stage->Forward(7, *batch, {}, 1.0).item<double>() == 0);
    CHECK_FALSE(model.stage->Backward(7, {}).defined());
  }
  CHECK(walked == 8);
  CHECK(model.flat->gradient().count_nonzero().item<int64_t>() == 0);
}

TEST_CASE("vision layers take part in recompute and interleaving", "[models][cpu]") {
  const bool large_form = GENERATE(false, true);
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const ModelConfig config = TinyInternVl(large_form);
  const auto batches = Batches(config, 2);
  TestModel plain = MakeModel(config, dtype), again = MakeModel(config, dtype);
  // Another kind for each layer of the four.
  const auto first = GENERATE(range(0, 4));
  for (size_t i = 0; i < again.stage->layers().size(); ++i) {
    again.stage->layers()[i]->recompute = static_cast<Recompute>((i + first) % 4);
  }
  const Gradients expected = Run(plain, batches, "F0 B0 F1 B1");
  for (const auto& [name, gradient] : expected) {
    INFO(name);
    CHECK(gradient.count_nonzero().item<int64_t>() > 0);
  }
  CHECK(SameBits(Run(again, batches, "F0 F1 B0 B1"), expected));
}

TEST_CASE("a frozen prefix keeps nothing and changes no other gradient", "[models][cpu]") {
  const ModelConfig config = TinyInternVl(false);
  const auto batches = Batches(config, 1);
  TestModel all = MakeModel(config);
  const Gradients expected = Run(all, batches, "F0 B0");
  struct Case {
    std::vector<std::string> freeze;
    size_t kept;
    std::vector<std::string> unfreeze = {};
  };
  // Patch embedding and two ViT blocks; projector; embedding, two decoder blocks and head.
  for (const Case& c :
       {Case{{}, 8}, Case{{"vision"}, 5}, Case{{"vision", "projector"}, 4}, Case{{"llm"}, 8},
        Case{{"projector"}, 8}, Case{{"vision", "llm"}, 5}, Case{{"vision", "projector", "llm"}, 0},
        Case{{"vision"}, 6, {"vision[-1:]"}}, Case{{"vision", "projector", "llm"}, 2, {"llm[-1:]"}},
        Case{{"vision", "projector", "llm"}, 1, {"lm_head"}},
        Case{{"vision", "projector", "llm"}, 2, {"layers.1.mlp"}}}) {
    ModelConfig parts = config;
    ResolveUnfreeze(c.unfreeze, c.freeze, &parts);
    TestModel model = MakeModel(parts, at::kFloat, c.freeze);
    model.stage->Forward(0, batches[0], {}, 0.1);
    CHECK(model.stage->num_kept() == c.kept);
    model.stage->Backward(0, {});
    for (const auto& [name, gradient] : model.gradients()) {
      INFO(name);
      if (gradient.defined()) CHECK(gradient.equal(expected.at(name)));
    }
    size_t frozen = 0;
    for (const Parameter* p : model.stage->parameters()) frozen += p->gradient.defined() ? 0 : 1;
    CHECK((frozen == 0) == c.freeze.empty());
  }
}

TEST_CASE("a text-only batch leaves the encoder alone", "[models][cpu]") {
  const ModelConfig config = TinyInternVl(false);
  TestModel model = MakeModel(config);
  const MicroBatch batch = RandomBatch(config, {9, 4}, 0, 3);
  size_t walked = 0;
  model.stage->on_layer_backward = [&](int, size_t) { ++walked; };
  model.stage->Forward(0, batch, {}, 1.0);
  CHECK(model.stage->num_kept() == 4);
  CHECK_FALSE(model.stage->Backward(0, {}).defined());
  CHECK(walked == 8);
  for (const auto& [name, gradient] : model.gradients()) {
    INFO(name);
    const bool text = name.rfind("language_model.", 0) == 0;
    CHECK((gradient.count_nonzero().item<int64_t>() > 0) == text);
  }
}

TEST_CASE("a stage refuses a micro-batch twice in flight, and an unknown one", "[models][cpu]") {
  const ModelConfig config = TinyText("qwen2", true);
  const auto batches = Batches(config, 1);
  TestModel model = MakeModel(config);
  model.stage->Forward(0, batches[0], {}, 1.0);
  CHECK_THROWS_WITH(model.stage->Forward(0, batches[0], {}, 1.0),
                    Catch::Matchers::Contains("micro-batch 0 is in flight already"));
  CHECK_THROWS_WITH(model.stage->Backward(1, {}),
                    Catch::Matchers::Contains("micro-batch 1 is not in flight"));
}

}  // namespace
}  // namespace equipoise
