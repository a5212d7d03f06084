// The optimizer on a GPU's stand-in: own kernels, whose row functions run there, LibTorch's loops,
// and the state on the host, beside the same on the CPU.
#include <ATen/ATen.h>
#include <ATen/Version.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <string>
#include <tuple>

#include "parallel/zero/adamw.h"
#include "parallel/zero/square_nodes.h"
#include "parallel/zero/tree_sum.h"
#include "tests/device/gpu_stand_in.h"
#include "tests/device/kernels_stand_in.h"
#include "tests/models/model_support.h"
#include "trainer/device/memory_stats.h"

namespace equipoise {
namespace {

using testing::Normal;

const at::Device kGpu(at::kCUDA, 0);

// Whether LibTorch fuses products and sums of fp32 vectors, as the kernel does.
bool Fuses() { return at::get_cpu_capability() != "DEFAULT"; }

struct Case {
  at::ScalarType dtype = at::kBFloat16, moments = at::kFloat;
  int ranks = 1, rank = 0;
  double lr = 1e-2, clip = 1;
  bool on_host = false;
  bool masters = true;
  bool clips_before = false;  // by a pass over the gradients, not in the step
};

// Matrices, vectors and a frozen one; one is larger than a chunk, two end within a vector.
class Model {
 public:
  // `from`: whose masters, moments and steps it takes over, as from a checkpoint; null: none.
  Model(const Case& c, at::Device device, const Model* from = nullptr)
      : parameters_(Make({{64, 48}, {16}, {9000, 3}, {7, 16}, {5, 7}, {33}})),
        flat_(Pointers(), c.dtype, c.ranks, device),
        adamw_(flat_, DecayGroups(Pointers(), {1, 1, 0.5, 0.5, 1, 1}, 0.1), Options(c),
               OwnedSlices(Shards(flat_.gradient().numel(), c.ranks, 1 << 14), c.rank)) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const bool taken = from != nullptr && parameters_[i].trainable;
      parameters_[i].stored().copy_(taken ? from->adamw_.Master(i).Get()
                                          : Normal(parameters_[i].shape, i));
    }
    flat_.UpdateCompute();
    adamw_.TakeMasters();
    if (from == nullptr) return;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!parameters_[i].trainable) continue;
      adamw_.exp_avg(i).copy_(from->adamw_.exp_avg(i));
      adamw_.exp_avg_sq(i).copy_(from->adamw_.exp_avg_sq(i));
    }
    adamw_.set_steps(from->adamw_.steps());
  }

  void Step(const Case& c, int number) {
    flat_.ZeroGradient();
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!parameters_[i].trainable) continue;
      const int seed = 100 * number + static_cast<int>(i);
      parameters_[i].gradient.copy_(Normal(parameters_[i].shape, seed).mul_(1e-3 * number));
    }
    if (!c.clips_before) return adamw_.Step(c.lr, c.clip);
    flat_.gradient().mul_(c.clip);
    adamw_.Step(c.lr);
  }

  FlatParameters& flat() { return flat_; }
  AdamW& adamw() { return adamw_; }
  const AdamW& adamw() const { return adamw_; }
  const Parameter& parameter(size_t i) const { return parameters_[i]; }
  size_t size() const { return parameters_.size(); }

 private:
  static std::vector<Parameter> Make(const std::vector<std::vector<int64_t>>& shapes) {
    std::vector<Parameter> parameters(shapes.size());
    for (size_t i = 0; i < shapes.size(); ++i) {
      parameters[i].name = "w" + std::to_string(i);
      parameters[i].shape = shapes[i];
    }
    parameters[3].trainable = false;
    return parameters;
  }
  std::vector<Parameter*> Pointers() {
    std::vector<Parameter*> pointers;
    for (Parameter& parameter : parameters_) pointers.push_back(&parameter);
    return pointers;
  }
  static AdamWOptions Options(const Case& c) {
    AdamWOptions options;
    options.beta2 = 0.95;
    options.moments = c.moments;
    options.on_host = c.on_host;
    if (!c.masters) options.rounding_seed = 4;
    return options;
  }

  std::vector<Parameter> parameters_;
  FlatParameters flat_;
  AdamW adamw_;
};

// `found` beside the row function's: the same bits, but in the last numbers of a parameter, fewer
// than a vector holds, which LibTorch computes in fp64.
void CheckElements(const at::Tensor& found, const at::Tensor& expected, double unit) {
  const at::Tensor a = found.cpu().flatten(), b = expected.flatten();
  REQUIRE(a.numel() == b.numel());
  const int64_t whole = Fuses() ? b.numel() / 16 * 16 : 0;
  CHECK(a.narrow(0, 0, whole).equal(b.narrow(0, 0, whole)));
  const at::Tensor x = a.slice(0, whole).to(at::kDouble), y = b.slice(0, whole).to(at::kDouble);
  CHECK((x - y).abs().le(y.abs() * unit + 1e-12).all().item<bool>());
}

using Compare = std::function<void(const at::Tensor& found, const at::Tensor& expected)>;

// What two models keep of the parameters that they train.
void CheckStates(const Model& found, const Model& expected, const Compare& compare) {
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO("parameter " << i);
    if (!expected.parameter(i).trainable || expected.adamw().Runs(i).empty()) continue;
    compare(found.adamw().exp_avg(i), expected.adamw().exp_avg(i));
    compare(found.adamw().exp_avg_sq(i), expected.adamw().exp_avg_sq(i));
    compare(found.adamw().Master(i).Get(), expected.adamw().Master(i).Get());
  }
}

void CheckSameBits(const at::Tensor& found, const at::Tensor& expected) {
  CHECK(found.cpu().equal(expected.cpu()));
}

bool HasRun(const std::string& operation) {
  const std::vector<std::string> names = testing::OperationsOfStandIn();
  return std::find(names.begin(), names.end(), operation) != names.end();
}

TEST_CASE("AdamW has the same bits by one launch, on the CPU, and offloaded", "[device]") {
  Case c;
  c.dtype = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  c.moments = GENERATE(at::kFloat, at::kBFloat16);
  std::tie(c.ranks, c.rank) = GENERATE(table<int, int>({{1, 0}, {3, 0}, {3, 2}}));
  c.clip = GENERATE(1.0, 0.3);
  INFO(c.dtype << ", moments " << c.moments << ", rank " << c.rank << " of " << c.ranks);
  Case offload = c, before_step = c;
  offload.on_host = true;
  before_step.clips_before = true;
  Model host(c, at::kCPU), device(c, kGpu), offloaded(offload, kGpu);
  const at::Tensor before = device.flat().compute().cpu();
  for (int number = 1; number <= 3; ++number) {
    for (Model* model : {&device, &offloaded}) model->Step(c, number);
    host.Step(before_step, number);
  }
  CHECK(HasRun("equipoise::adamw_"));
  CHECK(device.adamw().exp_avg(0).is_cuda());
  CHECK(offloaded.adamw().exp_avg(0).is_cpu());
  CheckStates(device, host, CheckSameBits);
  CheckStates(offloaded, host, CheckSameBits);
  CHECK(offloaded.flat().compute().cpu().equal(device.flat().compute().cpu()));
  // Frozen weights, padding and what other ranks update stay as they were.
  at::Tensor own = at::zeros_like(before, at::kBool);
  for (size_t i = 0; i < host.size(); ++i) {
    if (!host.parameter(i).trainable) continue;
    for (const Range& run : host.adamw().Runs(i))
      own.narrow(0, host.flat().gradient_offset(i) + run.begin, run.size()).fill_(true);
  }
  const at::Tensor after = device.flat().compute().cpu();
  CHECK(after.masked_select(own.logical_not()).equal(before.masked_select(own.logical_not())));
  CHECK(after.masked_select(own).ne(before.masked_select(own)).to(at::kFloat).mean().item<float>() >
        0.3);
}

// No own kernel knows codes: the device's come from LibTorch's AdamW and are rounded by its own
// operators, the host's from the row function.
TEST_CASE("moments in 8 bits are updated on a device region by region, or offloaded", "[device]") {
  Case c;
  c.moments = at::kByte;
  c.clip = 0.3;
  c.dtype = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  std::tie(c.ranks, c.rank) = GENERATE(table<int, int>({{1, 0}, {3, 2}}));
  Case offload = c, before_step = c;
  offload.on_host = true;
  before_step.clips_before = true;
  Model host(c, at::kCPU), device(c, kGpu), offloaded(offload, kGpu);
  for (Model* model : {&device, &offloaded}) model->Step(c, 1);
  host.Step(before_step, 1);
  CHECK(HasRun("aten::_fused_adamw_"));
  CHECK(HasRun("aten::bucketize.Tensor"));
  CHECK(device.adamw().exp_avg(0).is_cuda());
  CHECK(offloaded.adamw().exp_avg(0).is_cpu());
  for (size_t i = 0; i < host.size(); ++i) {
    if (!host.parameter(i).trainable || host.adamw().Runs(i).empty()) continue;
    INFO("parameter " << i);
    const at::Tensor moment = device.adamw().exp_avg(i).cpu(), expected = host.adamw().exp_avg(i);
    // Scales may differ in their last bits, and so few codes by one.
    const at::Tensor apart = (moment - expected).abs();
    CHECK(apart.le(expected.abs().max().mul(0.015)).all().item<bool>());
    CHECK(apart.gt(expected.abs().mul(1e-6)).to(at::kFloat).mean().item<float>() < 0.01);
    const at::Tensor master = host.adamw().Master(i).Get();
    CHECK((device.adamw().Master(i).Get().cpu() - master).abs().max().item<double>() < 1e-6);
  }
  for (int number = 2; number <= 3; ++number) {
    offloaded.Step(c, number);
    host.Step(before_step, number);
  }
  CheckStates(offloaded, host, CheckSameBits);
}

TEST_CASE("an offloaded optimizer leaves the device its state's memory", "[device]") {
  Case c;
  c.dtype = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  c.moments = GENERATE(at::kFloat, at::kBFloat16);
  c.ranks = 3;
  // Elements of the shard are those that a rank's gradients have.
  int64_t shard = 0;
  const auto taken = [&](bool on_host) {
    Case with = c;
    with.on_host = on_host;
    const int64_t before = GetMemory(kGpu).current_bytes;
    Model model(with, kGpu);
    shard = model.flat().trained_numel() / c.ranks;
    return GetMemory(kGpu).current_bytes - before;
  };
  // Beside the weight: nothing, a remainder, a whole master.
  const int64_t kept = c.dtype == at::kFloat ? 0 : c.dtype == at::kBFloat16 ? 2 : 4;
  const auto moment = static_cast<int64_t>(c10::elementSize(c.moments));
  const int64_t saved = taken(false) - taken(true);
  CHECK(saved == (2 * moment + kept) * shard);
  CHECK(shard > 9000);
}

TEST_CASE("weights without masters have the same bits by one launch, on the CPU, and offloaded",
          "[device]") {
  Case c;
  c.masters = false;
  c.clip = 0.3;
  c.moments = GENERATE(at::kFloat, at::kBFloat16);
  std::tie(c.ranks, c.rank) = GENERATE(table<int, int>({{1, 0}, {3, 0}, {3, 2}}));
  Case offload = c;
  offload.on_host = true;
  Model host(c, at::kCPU), device(c, kGpu), offloaded(offload, kGpu);
  const at::Tensor before = device.flat().compute().cpu();
  for (int number = 1; number <= 3; ++number) {
    for (Model* model : {&host, &device, &offloaded}) model->Step(c, number);
  }
  CHECK(HasRun("equipoise::adamw_"));
  CheckStates(device, host, CheckSameBits);
  CheckStates(offloaded, host, CheckSameBits);
  CHECK(device.flat().compute().cpu().equal(host.flat().compute()));
  CHECK(offloaded.flat().compute().cpu().equal(host.flat().compute()));
  CHECK_FALSE(host.flat().compute().equal(before));
}

// LibTorch's step differs from the row function's in the last numbers of a parameter by less than
// one in a million, of which few are rounded elsewhere.
TEST_CASE("without own kernels weights without masters are rounded alike", "[device]") {
  Case c;
  c.masters = false;
  c.moments = GENERATE(at::kFloat, at::kBFloat16, at::kByte);
  testing::UseOwnKernels(false);
  Model host(c, at::kCPU), device(c, kGpu);
  for (Model* model : {&host, &device}) model->Step(c, 1);
  testing::UseOwnKernels(true);
  CHECK(HasRun("aten::_fused_adamw_"));
  CheckStates(device, host, [](const at::Tensor& found, const at::Tensor& expected) {
    if (found.scalar_type() != at::kBFloat16 || expected.numel() < 16) return;
    const at::Tensor a = found.cpu().flatten(), b = expected.flatten();
    const int64_t whole = Fuses() ? b.numel() / 16 * 16 : 0;
    CHECK(a.narrow(0, 0, whole).equal(b.narrow(0, 0, whole)));
    CHECK(a.ne(b).sum().item<int64_t>() <= 1);
  });
}

TEST_CASE("an optimizer goes on from another's state, offloaded or not", "[device]") {
  Case c;
  c.dtype = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  Case other = c;
  c.on_host = GENERATE(false, true);
  other.on_host = !c.on_host;
  Model first(c, kGpu);
  for (int number = 1; number <= 2; ++number) first.Step(c, number);
  Model second(other, kGpu, &first);
  for (Model* model : {&first, &second}) model->Step(c, 3);
  CheckStates(second, first, CheckSameBits);
  CHECK(second.flat().compute().cpu().equal(first.flat().compute().cpu()));
}

TEST_CASE("a step that is tried ends as the step does, by own kernels too", "[device]") {
  Case c;
  c.dtype = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  c.on_host = GENERATE(false, true);
  Model device(c, kGpu);
  device.Step(c, 1);
  const at::Tensor before = device.flat().compute().cpu();
  CHECK(device.adamw().StepIsFinite(c.lr));
  CHECK_FALSE(device.adamw().StepIsFinite(1e39));
  CHECK(device.flat().compute().cpu().equal(before));
}

TEST_CASE("without own kernels AdamW is LibTorch's, whose bits the row function has", "[device]") {
  Case c;
  c.dtype = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  c.moments = GENERATE(at::kFloat, at::kBFloat16);
  c.clip = GENERATE(1.0, 0.3);
  Case before_step = c;
  before_step.clips_before = true;
  testing::UseOwnKernels(false);
  Model host(c, at::kCPU), device(c, kGpu);
  device.Step(c, 1);
  host.Step(before_step, 1);
  testing::UseOwnKernels(true);
  CHECK(HasRun("aten::_fused_adamw_"));
  const double unit = c.moments == at::kFloat ? 1e-6 : 1.0 / 128;
  CheckStates(device, host, [unit](const at::Tensor& found, const at::Tensor& expected) {
    CheckElements(found, expected, unit);
  });
}

double CpuSquares(const at::Tensor& values) {
  TreeSum sum;
  AddSquares(values.const_data_ptr<float>(), values.numel(), 0, sum);
  return sum.Total();
}

TEST_CASE("squares by one launch have the CPU's bits, however they are cut", "[device]") {
  constexpr int64_t kBlock = Shards::kBlock, kNode = 64 * kBlock;
  for (const int64_t size : {int64_t{1}, int64_t{15}, int64_t{63}, kBlock, kBlock + 17, kNode - 1,
                             kNode, 5 * kNode + 900, 37 * kNode + 31}) {
    INFO(size << " elements");
    const at::Tensor values = Normal({size}, 3).exp();
    const int64_t begin = 3 * kBlock, blocks = (size + kBlock - 1) / kBlock;
    const at::Tensor flat = at::zeros({begin + blocks * kBlock});
    flat.narrow(0, begin, size).copy_(values);
    const at::Tensor there = flat.to(kGpu);
    const double expected = CpuSquares(values);
    for (const int64_t cut : {int64_t{0}, blocks / 3, blocks - 1}) {
      std::vector<SquaredRun> runs;
      for (const Range part : {Range{0, cut}, {cut, blocks}}) {
        if (part.size() == 0) continue;
        const int64_t end = std::min(part.end * kBlock, size);
        runs.push_back({{begin + part.begin * kBlock, begin + end}, part.begin});
      }
      const int64_t reads = testing::CountsOfStandIn().reads;
      TreeSum sum;
      for (const TreeSum& run : GpuSquares(runs).Sums(there)) {
        for (const TreeNode& node : run.nodes()) sum.Add(node);
      }
      CHECK(testing::CountsOfStandIn().reads == reads + 1);
      CHECK(sum.Total() == expected);
    }
  }
  CHECK(HasRun("equipoise::square_nodes"));
  const at::Tensor large = at::full({kBlock}, 1e30F);  // beyond fp32
  CHECK(GpuSquares({{{0, kBlock}, 0}}).Sums(large.to(kGpu))[0].Total() ==
        Approx(64e60).epsilon(1e-6));
}

// What an outer optimizer does with them (parallel/diloco).
TEST_CASE("masters are read and replaced by ranges of the shard", "[device]") {
  Case c;
  c.dtype = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  c.on_host = GENERATE(false, true);
  c.ranks = GENERATE(1, 2);
  c.rank = c.ranks - 1;
  c.masters = c.dtype != at::kBFloat16 || GENERATE(true, false);
  Model gpu(c, kGpu), cpu(c, at::kCPU);
  for (Model* model : {&gpu, &cpu}) {
    model->Step(c, 1);
    AdamW& adamw = model->adamw();
    const at::Tensor all = adamw.Masters({0, adamw.numel()});
    CHECK(all.is_cpu() == (model == &cpu || c.on_host));
    for (size_t i = 0; i < model->size(); ++i) {
      if (!model->parameter(i).trainable || adamw.Runs(i).empty()) continue;
      CheckSameBits(adamw.PartOf(all, i), adamw.Master(i).Get().to(at::kFloat));
    }
    const int64_t middle = adamw.numel() / 3 + 5;
    const at::Tensor other = Normal({adamw.numel()}, 17);
    for (const Range& range : {Range{0, middle}, Range{middle, adamw.numel()}}) {
      adamw.SetMasters(range, other.narrow(0, range.begin, range.size()));
      if (c.masters)
        CheckSameBits(adamw.Masters(range), other.narrow(0, range.begin, range.size()));
    }
  }
  for (size_t i = 0; i < cpu.size(); ++i)
    CheckSameBits(gpu.parameter(i).value, cpu.parameter(i).value);
  const at::Tensor all = gpu.adamw().Masters({0, gpu.adamw().numel()}).cpu();
  CHECK(at::allclose(all, Normal({gpu.adamw().numel()}, 17), 1.0 / 256, 1e-6));
}

}  // namespace
}  // namespace equipoise
