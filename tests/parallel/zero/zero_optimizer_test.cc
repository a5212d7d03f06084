#include "parallel/zero/zero_optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "tests/parallel/run_ranks.h"
#include "tests/parallel/zero/small_model.h"

namespace equipoise {
namespace {

using testing::Numbers;
using Model = testing::SmallModel;
using Setting = testing::SmallModelSetting;

void Require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// All states of all ranks put together by name, each element from one rank.
struct Whole {
  std::mutex mutex;
  std::map<std::string, std::vector<float>> values;
  std::map<std::string, std::vector<int>> times;

  void Add(const std::vector<ZeroOptimizer::State>& states) {
    const std::lock_guard lock(mutex);
    for (const ZeroOptimizer::State& state : states) {
      const auto numel = static_cast<size_t>(state.parameter->numel());
      auto& into = values[state.name];
      auto& count = times[state.name];
      into.resize(numel), count.resize(numel);
      const at::Tensor fp32 = state.values.Get().to(at::kFloat);
      const auto* from = fp32.const_data_ptr<float>();
      for (const Range& run : state.runs) {
        for (int64_t i = run.begin; i < run.end; ++i) {
          into[static_cast<size_t>(i)] = *from++;
          ++count[static_cast<size_t>(i)];
        }
      }
      Require(from == fp32.const_data_ptr<float>() + fp32.numel(), "size");
    }
  }
};

// Trains 4 steps; what all ranks save afterwards, and the values that rank 0 computes with.
void Train(int ranks, const Setting& setting, Whole& saved, std::vector<double>& norms,
           at::Tensor& compute) {
  RunRanks(ranks, [&](Communicator& group) {
    Model model(setting, group);
    for (int step = 0; step < 4; ++step) {
      const double norm = model.Step(step);
      if (group.rank() == 0) norms.push_back(norm);
    }
    saved.Add(model.optimizer->ToSave());
    if (group.rank() == 0) compute = model.flat().compute().clone();
  });
}

TEST_CASE("sharding changes no bit of norm, weights and moments", "[zero][cpu]") {
  const int ranks = GENERATE(2, 3, 4);
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const int64_t bucket_bytes = GENERATE(4, 4096, 1 << 20);
  const auto moments = GENERATE(at::kFloat, at::kByte);
  Whole plain, sharded;
  std::vector<double> plain_norms, sharded_norms;
  at::Tensor plain_compute, sharded_compute;
  Train(ranks, {0, dtype, bucket_bytes, moments}, plain, plain_norms, plain_compute);
  Train(ranks, {1, dtype, bucket_bytes, moments}, sharded, sharded_norms, sharded_compute);
  CHECK(plain_norms == sharded_norms);
  CHECK(plain_norms.size() == 4);
  CHECK(plain.values == sharded.values);
  for (const auto& [name, times] : sharded.times) {
    INFO(name);
    CHECK(std::all_of(times.begin(), times.end(), [](int n) { return n == 1; }));
  }
  CHECK(plain.times == sharded.times);
  CHECK(plain.values.size() == 7 + 2 * 5);  // 7 have elements, of which 5 are trained
}

TEST_CASE("sharding changes no bit of weights that have no masters", "[zero][cpu]") {
  const int ranks = GENERATE(1, 2, 3);
  const int64_t bucket_bytes = GENERATE(4, 4096);
  const auto moments = GENERATE(at::kFloat, at::kBFloat16, at::kByte);
  Whole plain, sharded, other_seed;
  std::vector<double> plain_norms, sharded_norms;
  at::Tensor plain_compute, sharded_compute;
  Setting setting{0, at::kBFloat16, bucket_bytes, moments, 5};
  Train(ranks, setting, plain, plain_norms, plain_compute);
  setting.zero = 1;
  Train(ranks, setting, sharded, sharded_norms, sharded_compute);
  CHECK(plain.values == sharded.values);
  CHECK(at::equal(plain_compute.narrow(0, 0, 5000), sharded_compute.narrow(0, 0, 5000)));
  setting.rounding_seed = 6;
  Train(ranks, setting, other_seed, sharded_norms, sharded_compute);
  CHECK(plain.values != other_seed.values);
}

TEST_CASE("every rank has the same weights after a step", "[zero][cpu]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  std::vector<at::Tensor> of_rank(3);
  RunRanks(3, [&](Communicator& group) {
    Model model({1, dtype, 4096}, group);
    const at::Tensor before = model.flat().compute().clone();
    model.Step(0);
    Require(!at::equal(before, model.flat().compute()), "nothing was trained");
    of_rank[static_cast<size_t>(group.rank())] = model.flat().compute().clone();
  });
  CHECK(at::equal(of_rank[0], of_rank[1]));
  CHECK(at::equal(of_rank[0], of_rank[2]));
}

TEST_CASE("a rank keeps its shard of masters and moments alone", "[zero][cpu]") {
  RunRanks(4, [&](Communicator& group) {
    Model model({1, at::kBFloat16, 4096}, group);
    for (const Parameter* p : model.list()) Require(!p->master.defined(), "a master is left");
    int64_t held = 0;
    for (const auto& state : model.optimizer->Moments()) held += state.values.numel();
    const int64_t all = model.flat().gradient().numel();
    Require(held <= 2 * all / 4, "more than a quarter of the moments");
  });
}

TEST_CASE("a gradient that is not finite on one rank is seen by all", "[zero][cpu]") {
  const int zero = GENERATE(0, 1);
  RunRanks(3, [&](Communicator& group) {
    Model model({zero, at::kFloat, 4096}, group);
    model.flat().ZeroGradient();
    if (group.rank() == 1) {
      model.list()[2]->gradient.view({-1})[4899].fill_(std::numeric_limits<float>::infinity());
    }
    model.reducer->Finish();
    Require(!std::isfinite(model.optimizer->GradientNorm()), "not seen");
  });
}

// What a rank holds of weights and moments, and how many steps it has done.
std::vector<std::vector<float>> StateOf(Model& model) {
  std::vector<std::vector<float>> all;
  const auto add = [&](const at::Tensor& t) {
    const at::Tensor flat = t.to(at::kFloat).contiguous().view({-1});
    all.emplace_back(flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel());
  };
  add(model.flat().compute());
  for (const auto& state : model.optimizer->ToSave()) add(state.values.Get());
  for (const auto& state : model.optimizer->Moments()) add(state.values.Get());
  all.push_back({static_cast<float>(model.optimizer->steps())});
  return all;
}

// A step with `gradient` as every element that rank 1 adds, and 1 as those of the others.
bool StepWith(Model& model, Communicator& group, float gradient, double lr) {
  model.flat().ZeroGradient();
  for (Parameter* p : model.list()) {
    if (p->trainable) p->gradient.fill_(group.rank() == 1 ? gradient : 1.0F);
  }
  model.reducer->Finish();
  Require(std::isfinite(model.optimizer->GradientNorm()), "the gradient itself is not finite");
  return model.optimizer->Step(lr);
}

TEST_CASE("a step that would leave a number that is not finite is taken by no rank",
          "[zero][cpu]") {
  const int zero = GENERATE(0, 1);
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  struct Fault {
    const char* name;
    float gradient;
    double lr;
    float moment;  // put into one element of one rank's moments; 0: none
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Fault fault = GENERATE_COPY(values<Fault>({{"learning rate", 1, 1e38, 0},
                                                   {"square of a gradient", 1e25F, 1e-3, 0},
                                                   {"moment", 1, 1e-3, nan},
                                                   {"large moment", 1, 10, 3e38F}}));
  INFO(fault.name);
  std::vector<int> kept(3), refused(3), goes_on(3);
  RunRanks(3, [&](Communicator& group) {
    const auto rank = static_cast<size_t>(group.rank());
    Model model({zero, dtype, 4096}, group);
    model.Step(0);
    if (fault.moment != 0 && group.rank() == 1) {
      model.optimizer->Moments()[0].values.Get().view({-1})[0].fill_(fault.moment);
      model.optimizer->Moments()[1].values.Get().view({-1})[0].fill_(0);
    }
    model.optimizer->set_steps(1);
    const auto before = StateOf(model);
    refused[rank] = StepWith(model, group, fault.gradient, fault.lr) ? 0 : 1;
    const auto after = StateOf(model);
    kept[rank] = 1;
    for (size_t i = 0; i < before.size(); ++i) {
      if (std::memcmp(before[i].data(), after[i].data(), 4 * before[i].size()) != 0) kept[rank] = 0;
    }
    if (fault.moment != 0 && group.rank() == 1) {
      model.optimizer->Moments()[0].values.Get().view({-1})[0].fill_(0);
    }
    goes_on[rank] = StepWith(model, group, 1, 1e-3) ? 1 : 0;
  });
  CHECK(refused == std::vector<int>{1, 1, 1});
  CHECK(kept == std::vector<int>{1, 1, 1});
  CHECK(goes_on == std::vector<int>{1, 1, 1});
}

TEST_CASE("a step beyond the bounds that stays finite is taken as any other", "[zero][cpu]") {
  std::vector<int> equal(2);
  RunRanks(2, [&](Communicator& group) {
    Model model({1, at::kFloat, 4096}, group), other({1, at::kFloat, 4096}, group);
    Require(StepWith(model, group, 1, 1e30), "refused");
    for (Parameter* p : other.list()) {
      if (p->trainable) p->gradient.fill_(1.0F);
    }
    AdamW plain(other.flat(),
                DecayGroups(other.list(), std::vector<double>(other.list().size(), 1.0), 0.05), {});
    plain.TakeMasters();
    plain.Step(1e30);
    equal[static_cast<size_t>(group.rank())] =
        at::equal(model.flat().compute(), other.flat().compute()) ? 1 : 0;
  });
  CHECK(equal == std::vector<int>{1, 1});
}

TEST_CASE("moments that are read back go on with the same bits", "[zero][cpu]") {
  // In another sharding too, as a checkpoint may be.
  const int zero = GENERATE(0, 1);
  const auto moments = GENERATE(at::kFloat, at::kBFloat16, at::kByte);
  Whole saved;
  std::vector<int> equal(2);
  RunRanks(2, [&](Communicator& group) {
    Model model({1, at::kFloat, 4096, moments}, group),
        other({zero, at::kFloat, 4096, moments}, group);
    for (int step = 0; step < 3; ++step) model.Step(step);
    model.flat().AwaitValues();  // in fp32 they are the masters
    saved.Add(model.optimizer->Moments());
    Barrier(group);
    int64_t written = 0;
    other.optimizer->ReadMoments([&](const std::vector<ZeroOptimizer::State>& some) {
      for (const ZeroOptimizer::State& state : some) {
        const at::Tensor flat = state.values.Get().view({-1});
        int64_t at = 0;
        for (const Range& run : state.runs) {
          const auto* from = saved.values.at(state.name).data() + run.begin;
          flat.narrow(0, at, run.size()).copy_(at::tensor(at::ArrayRef<float>(from, run.size())));
          at += run.size();
        }
        Require(at == flat.numel(), "size");
        written += at;
      }
    });
    Require(written > 0, "nothing was read");
    const auto of_all = [&](const auto& visit) {
      for (size_t i = 0; i < model.list().size(); ++i) visit(*other.list()[i], *model.list()[i]);
    };
    of_all([](Parameter& to, const Parameter& from) { to.stored().copy_(from.stored()); });
    other.optimizer->set_steps(model.optimizer->steps());
    model.Step(3);
    other.Step(3);
    model.flat().AwaitValues();
    other.flat().AwaitValues();
    bool same = true;
    of_all([&](const Parameter& a, const Parameter& b) { same = same && a.value.equal(b.value); });
    equal[static_cast<size_t>(group.rank())] = same ? 1 : 0;
  });
  CHECK(equal == std::vector<int>{1, 1});
}

// A model over a mesh of 2 data ranks x 2 pipeline ranks, with parts of a tensor and a copy.
TEST_CASE("the norm of a model spread over ranks counts each part once", "[zero][cpu]") {
  const int zero = GENERATE(0, 1);
  const at::Tensor first = Numbers({300}, 1), split = Numbers({10, 30}, 2),
                   shared = Numbers({77}, 3);
  std::vector<double> norms(4);
  RunRanks(4, [&](Communicator& world) {
    const int stage = world.rank() % 2;
    const auto data = world.Split(stage, world.rank(), "data");
    Parameter own, part, copy;
    own.name = stage == 0 ? "z" : "a";
    own.shape = {300};
    part.name = "m.split";
    part.shape = {5, 30};
    part.part = {0, 5 * stage, 10, true};
    copy.name = "shared";
    copy.shape = {77};
    copy.part.owner = stage == 1;
    FlatParameters flat({&own, &part, &copy}, at::kFloat, zero == 0 ? 1 : 2);
    const Shards shards = ZeroShards(ShardedStateOf(zero), flat, *data, 4);
    DistributedNorm norm(flat, shards, *data, world);
    own.gradient.copy_(first);
    part.gradient.copy_(split.narrow(0, 5 * stage, 5));
    copy.gradient.copy_(shared);
    norms[static_cast<size_t>(world.rank())] = norm.Compute();
    // On one pipeline rank, in a part of a tensor.
    if (stage == 0) part.gradient.view({-1})[149].fill_(std::nan(""));
    Require(!std::isfinite(norm.Compute()), "what is not finite is not seen");
  });
  double sum = 0;
  for (const at::Tensor& t : {first, first, split, shared}) {
    for (int64_t i = 0; i < t.numel(); ++i) {
      const double value = t.const_data_ptr<float>()[i];
      sum += value * value;
    }
  }
  CHECK(norms[0] == Approx(std::sqrt(sum)).epsilon(1e-14));
  CHECK(norms == std::vector<double>(4, norms[0]));
}

TEST_CASE("the spread norm is that of one rank, bit for bit", "[zero][cpu]") {
  const int ranks = GENERATE(1, 2, 3), zero = GENERATE(0, 1);
  const int64_t bucket_bytes = GENERATE(4, 3000, 1 << 20);
  RunRanks(ranks, [&](Communicator& group) {
    Model model({zero, at::kFloat, bucket_bytes}, group);
    for (Parameter* p : model.list()) {
      if (p->trainable) p->gradient.copy_(Numbers(p->shape, 5));
    }
    Require(model.optimizer->GradientNorm() == GradientNorm(model.list()), "another norm");
  });
}

TEST_CASE("new values are awaited by those who read them, once", "[zero][cpu]") {
  std::vector<Parameter> owned(3);
  std::vector<Parameter*> list;
  for (Parameter& parameter : owned) {
    parameter.shape = {256};
    parameter.name = "p" + std::to_string(list.size());
    list.push_back(&parameter);
  }
  FlatParameters flat(list, at::kFloat);
  int first = 0, second = 0;
  flat.ArriveLater({0, 384}, [&] { ++first; });
  flat.ArriveLater({384, 768}, [&] { ++second; });
  flat.AwaitValues({list[0]});
  CHECK((first == 1 && second == 0));
  flat.AwaitValues({list[1]});  // of which half has come already
  CHECK((first == 1 && second == 1));
  flat.ArriveLater({0, 768}, [&] { ++first; });
  CHECK(flat.compute().numel() == 768);
  CHECK(first == 2);
  flat.AwaitValues();
  CHECK((first == 2 && second == 1));
}

}  // namespace
}  // namespace equipoise
