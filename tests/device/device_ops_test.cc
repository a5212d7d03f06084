// Every operation on a GPU's stand-in beside the same one on the CPU: result, gradients of inputs,
// gradients of weights, in fp32 and bf16.
#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "models/layers/micro_batch.h"
#include "models/ops/activation.h"
#include "models/ops/attention.h"
#include "models/ops/cross_entropy.h"
#include "models/ops/dropout.h"
#include "models/ops/embedding.h"
#include "models/ops/linear.h"
#include "models/ops/norm.h"
#include "models/ops/patches.h"
#include "models/ops/pixels.h"
#include "models/ops/rotary.h"
#include "parallel/device.h"
#include "parallel/split_master.h"
#include "parallel/zero/square_nodes.h"
#include "tests/device/check_packed.h"
#include "tests/device/gpu_stand_in.h"
#include "tests/device/kernels_stand_in.h"
#include "tests/models/model_support.h"
#include "trainer/device/open_kernels.h"

namespace equipoise {
namespace {

using testing::CountsOfStandIn;
using testing::Normal;
using testing::RelativeError;
using Tensors = std::vector<at::Tensor>;
using Weights = std::vector<Parameter*>;
using Work = std::function<at::Tensor(const Tensors& inputs, const Weights&, at::Device)>;

const at::Device kGpu(at::kCUDA, 0);

struct Problem {
  std::vector<std::vector<int64_t>> inputs, weights;
  Work work;
};

// Result, gradients of inputs, gradients of weights, on the CPU.
Tensors RunOn(at::Device device, at::ScalarType dtype, const Problem& problem) {
  std::vector<Parameter> parameters(problem.weights.size());
  Weights weights;
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].name = "w" + std::to_string(i);
    parameters[i].shape = problem.weights[i];
    weights.push_back(&parameters[i]);
  }
  FlatParameters flat(weights, dtype, /*shards=*/1, device);
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i]->master.copy_(Normal(weights[i]->shape, 20 + i).add_(0.5));
  }
  flat.UpdateCompute();
  flat.DropMasters();
  Tensors inputs;
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    inputs.push_back(Normal(problem.inputs[i], 10 + i).to(dtype).to(device).requires_grad_());
  }
  const at::Tensor y = problem.work(inputs, weights, device);
  CHECK(y.device() == device);
  y.backward(Normal(y.sizes().vec(), 30).to(y.scalar_type()).to(device));
  Tensors all = {y.detach().cpu()};
  for (const at::Tensor& input : inputs) all.push_back(input.grad().cpu());
  for (const Parameter* weight : weights) all.push_back(weight->gradient.cpu());
  return all;
}

void Check(const Problem& problem) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const Tensors expected = RunOn(at::kCPU, dtype, problem);
    const Tensors found = RunOn(kGpu, dtype, problem);
    const double bound = dtype == at::kFloat ? 3e-6 : 1e-2;
    for (size_t i = 0; i < expected.size(); ++i) {
      INFO("dtype " << dtype << " tensor " << i << " of result, inputs, weights");
      CHECK(RelativeError(found[i], expected[i]) <= bound);
    }
  }
}

bool HasRun(const std::string& operation) {
  const std::vector<std::string> names = testing::OperationsOfStandIn();
  return std::find(names.begin(), names.end(), operation) != names.end();
}

TEST_CASE("norms, activations and linear layers on a device, by own kernels and by LibTorch's",
          "[device]") {
  const bool own = GENERATE(true, false);
  testing::UseOwnKernels(own);
  Check({{{3, 5, 16}}, {{16}}, [](const Tensors& x, const Weights& w, at::Device) {
           return ops::RmsNorm(x[0], *w[0], 1e-6);
         }});
  // Rows that do not lie behind each other.
  Check({{{5, 24}}, {{16}}, [](const Tensors& x, const Weights& w, at::Device) {
           return ops::RmsNorm(x[0].narrow(1, 4, 16), *w[0], 1e-6);
         }});
  Check({{{3, 5, 16}}, {{16}, {16}}, [](const Tensors& x, const Weights& w, at::Device) {
           return ops::LayerNorm(x[0], *w[0], *w[1], 1e-6);
         }});
  Check({{{37, 16}}, {{8, 16}, {8}}, [](const Tensors& x, const Weights& w, at::Device) {
           return ops::Linear(x[0], *w[0], w[1]);
         }});
  Check({{{9, 16}},
         {{16, 16}, {8, 16}, {16}, {8}},
         [](const Tensors& x, const Weights& w, at::Device) {
           return ops::FusedLinear(x[0], {{w[0], w[2]}, {w[1], w[3]}});
         }});
  Check({{{7, 12}, {7, 12}}, {{12}}, [](const Tensors& x, const Weights& w, at::Device) {
           return ops::ScaledResidual(x[0], x[1], *w[0]);
         }});
  if (own) CHECK((HasRun("equipoise::column_sums") && HasRun("equipoise::scaled")));
  testing::UseOwnKernels(true);
}

TEST_CASE("gated activations on a device, by own kernels and by LibTorch's", "[device]") {
  for (const bool own : {true, false}) {
    testing::UseOwnKernels(own);
    for (const int64_t inner : {16, 13}) {  // in packs of 16 bytes, and one by one
      Check({{{7, 2 * inner}}, {}, [](const Tensors& x, const Weights&, at::Device) {
               return ops::SwiGlu(x[0]);
             }});
    }
    CHECK(HasRun(own ? "equipoise::swi_glu_gradient" : "aten::silu_backward.grad_input"));
    if (own) CHECK_FALSE(HasRun("aten::silu_backward.grad_input"));
  }
  testing::UseOwnKernels(true);
}

TEST_CASE("dropout on a device, by an own kernel and by LibTorch's", "[device]") {
  for (const bool own : {true, false}) {
    testing::UseOwnKernels(own);
    for (const int64_t columns : {16, 13}) {
      Check({{{3, 7, columns}}, {}, [](const Tensors& x, const Weights&, at::Device) {
               return ops::Dropout(x[0], 0.4, {5, "place", 2, 3});
             }});
    }
    CHECK(HasRun(own ? "equipoise::dropped" : "aten::bitwise_xor.Tensor_out"));
  }
  testing::UseOwnKernels(true);
}

TEST_CASE("patches and embeddings on a device", "[device]") {
  Check({{{2, 17, 6}}, {}, [](const Tensors& x, const Weights&, at::Device) {
           return ops::MergeSquares(x[0], 2);
         }});
  Check({{{2, 9, 6}}, {{1, 1, 6}, {1, 10, 6}}, [](const Tensors& x, const Weights& w, at::Device) {
           return ops::AddClassAndPositions(x[0], w[0], *w[1]);
         }});
  Check({{{3, 6}}, {{11, 6}}, [](const Tensors& x, const Weights& w, at::Device device) {
           const at::Tensor ids = at::tensor({1, 10, 10, 10, 3, 1, 0}, at::kLong).to(device);
           const at::Tensor places = at::tensor({1, 2, 3}, at::kLong).to(device);
           return ops::EmbedAndSplice(ids, x[0], places, *w[0]);
         }});
  const at::Tensor images = Normal({2, 3, 8, 8}, 1);
  CHECK(ops::CutIntoPatches(images.to(kGpu), 4, at::kBFloat16)
            .cpu()
            .equal(ops::CutIntoPatches(images, 4, at::kBFloat16)));
}

TEST_CASE("pictures are normalized on a device to the CPU's bits", "[device]") {
  ImageSpec spec;
  spec.mean = {0.485F, 0.456F, 0.406F};
  spec.deviation = {0.229F, 0.224F, 0.225F};
  const at::Tensor bytes =
      at::arange(256, at::kLong).to(at::kByte).repeat({3}).view({1, 3, 16, 16});
  const ops::PixelScale on_cpu(spec, at::kCPU), on_gpu(spec, kGpu);
  const at::Tensor pixels = on_cpu(bytes);
  REQUIRE(pixels.sizes() == bytes.sizes());
  for (size_t channel = 0; channel < 3; ++channel) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const float scaled = static_cast<float>(byte) / 255.0F;
      REQUIRE(pixels.const_data_ptr<float>()[channel * 256 + byte] ==
              (scaled - spec.mean[channel]) / spec.deviation[channel]);
    }
  }
  const int64_t waits = CountsOfStandIn().waits;
  MicroBatch batch;
  batch.pixel_values = bytes;
  const MicroBatch at_rest = batch;
  batch = PinnedFor(batch, kGpu);
  CHECK(batch.pixel_values.is_pinned());
  CHECK_FALSE(PinnedFor(at_rest, at::kCPU).pixel_values.is_pinned());
  const at::Tensor there = on_gpu(ToDevice(batch.pixel_values, kGpu));
  CHECK(CountsOfStandIn().waits == waits);
  CHECK(there.cpu().equal(pixels));
  const at::Tensor rows = bytes.view({1, 768});  // patches of a picture, channel after channel
  CHECK(on_gpu(rows.to(kGpu)).cpu().equal(pixels.view({1, 768})));
}

TEST_CASE("rotary embeddings on a device, by own kernels and by LibTorch's", "[device]") {
  for (const bool own : {true, false}) {
    testing::UseOwnKernels(own);
    for (const int64_t first : {0, 16}) {  // q or k of a joined projection
      Check({{{7, 40}}, {}, [=](const Tensors& x, const Weights&, at::Device device) {
               const at::Tensor angles = Normal({7, 4}, 3).to(device);
               return ops::Rotate(x[0].narrow(1, first, 24), angles.cos(), angles.sin());
             }});
    }
  }
  testing::UseOwnKernels(true);
}

TEST_CASE("attention on a device", "[device]") {
  const int64_t head_dim = GENERATE(8, 4), key_heads = GENERATE(1, 2, 4);
  const std::vector<int64_t> ends = {0, 5, 5, 6, 17};
  INFO("heads of " << head_dim << ", " << key_heads << " key heads");
  const std::vector<int64_t> q = {17, 4 * head_dim}, k = {17, key_heads * head_dim};
  const int64_t flash = CountsOfStandIn().flash_attentions;
  Check({{q, k, k}, {}, [&](const Tensors& x, const Weights&, at::Device) {
           return ops::PackedAttention(x[0], x[1], x[2], ends, head_dim);
         }});
  CHECK(CountsOfStandIn().flash_attentions == flash + (head_dim == 8 ? 4 : 0));  // bf16 and fp16
  // Of one joined projection, as in a layer.
  Check({{{17, q[1] + 2 * k[1]}}, {}, [&](const Tensors& x, const Weights&, at::Device) {
           const auto qkv = at::split_with_sizes(x[0], {q[1], k[1], k[1]}, 1);
           return ops::PackedAttention(qkv[0], qkv[1], qkv[2], ends, head_dim);
         }});
  // Some rows, and all keys.
  Check(
      {{{6, 4 * head_dim}, k, k}, {}, [&](const Tensors& x, const Weights&, at::Device) {
         return ops::AttentionOfRows(x[0], x[1], x[2], {{0, 2}, {5, 6}, {14, 17}}, ends, head_dim);
       }});
  const std::vector<int64_t> tiles = {2, 5, 3 * head_dim};
  Check({{tiles, tiles, tiles}, {}, [&](const Tensors& x, const Weights&, at::Device) {
           return ops::FullAttention(x[0], x[1], x[2], head_dim);
         }});
}

TEST_CASE("attention on a device by cuDNN, where it is chosen", "[device]") {
  ChooseAttention("cudnn_tiles");
  const std::vector<int64_t> ends = {0, 5, 5, 6, 17}, q = {17, 32}, k = {17, 16};
  const int64_t flash = CountsOfStandIn().flash_attentions;
  Check({{q, k, k}, {}, [&](const Tensors& x, const Weights&, at::Device) {
           return ops::PackedAttention(x[0], x[1], x[2], ends, 8);
         }});
  const std::vector<int64_t> tiles = {3, 5, 24};
  Check({{tiles, tiles, tiles}, {}, [&](const Tensors& x, const Weights&, at::Device) {
           return ops::FullAttention(x[0], x[1], x[2], 8);
         }});
  ChooseAttention("flash");
  // The stand-in computes all by the same code: what was asked for is told by its list.
  CHECK(CountsOfStandIn().flash_attentions == flash + 8);  // bf16 and fp16
  const std::vector<std::string> asked = testing::OperationsOfStandIn();
  const auto has = [&](const std::string& name) {
    return std::find(asked.begin(), asked.end(), name) != asked.end();
  };
  CHECK(has("aten::_scaled_dot_product_cudnn_attention"));
  CHECK(has("aten::_scaled_dot_product_cudnn_attention_backward"));
}

TEST_CASE("attention to cached keys on a device", "[device]") {
  const at::ScalarType dtype = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const int64_t rows = GENERATE(1, 6);
  const at::Tensor q = Normal({rows + 1, 32}, 1).to(dtype);
  const auto attention = [&](at::Device device) {
    const auto rows_of = [&](int64_t count, uint64_t seed) {
      return Normal({count, 16}, seed).to(dtype).to(device);
    };
    return ops::CachedAttention(q.to(device), {rows_of(6, 2), rows_of(9, 3)},
                                {rows_of(6, 4), rows_of(9, 5)}, {0, rows, rows + 1}, 8);
  };
  const at::Tensor expected = attention(at::kCPU), found = attention(kGpu);
  CHECK(RelativeError(found.cpu(), expected) <= (dtype == at::kFloat ? 3e-6 : 1e-2));
}

TEST_CASE("loss on a device, by own kernels and by LibTorch's", "[device]") {
  const bool weighted = GENERATE(false, true), in_backward = GENERATE(false, true);
  testing::UseOwnKernels(GENERATE(true, false));
  Check({{{300, 8}}, {{19, 8}}, [&](const Tensors& x, const Weights& w, at::Device device) {
           ops::Targets targets;
           targets.ids = at::arange(300, at::kLong).remainder(19).to(device);
           if (weighted) targets.weights = at::linspace(0.5, 2, 300, at::kFloat).to(device);
           targets.scale = 0.25;
           return ops::LinearCrossEntropy(x[0], targets, *w[0], in_backward);
         }});
  testing::UseOwnKernels(true);
}

// Tensors of these sizes, each from a multiple of a block on, in a flat buffer of 4 blocks more.
struct FlatTensors {
  std::vector<int64_t> sizes, offsets;
  at::Tensor flat;
};

FlatTensors MakeFlat(std::vector<int64_t> sizes) {
  FlatTensors tensors{std::move(sizes), {}, {}};
  int64_t end = 2 * Shards::kBlock;
  for (const int64_t size : tensors.sizes) {
    tensors.offsets.push_back(end);
    end += (size + Shards::kBlock - 1) / Shards::kBlock * Shards::kBlock;
  }
  tensors.flat = at::zeros({end + 2 * Shards::kBlock}, at::kFloat);
  for (size_t i = 0; i < tensors.sizes.size(); ++i) {
    tensors.flat.narrow(0, tensors.offsets[i], tensors.sizes[i])
        .copy_(Normal({tensors.sizes[i]}, static_cast<int>(i)));
  }
  return tensors;
}

// A tree of blocks: the runs of a tensor that ranks hold give the bits of the whole one.
TEST_CASE("squares on a device are summed as on the CPU, however they are cut", "[device]") {
  testing::UseOwnKernels(GENERATE(true, false));
  const FlatTensors tensors = MakeFlat({1, 64, 100, 64 * 64, 64 * 64 * 3 + 17, 7, 64 * 300});
  const at::Tensor there = tensors.flat.to(kGpu);
  std::vector<SquaredRun> whole, cut;
  std::vector<size_t> of_tensor;  // of each run in `cut`
  for (size_t i = 0; i < tensors.sizes.size(); ++i) {
    const int64_t begin = tensors.offsets[i], end = begin + tensors.sizes[i];
    const int64_t blocks = (tensors.sizes[i] + 63) / 64;
    whole.push_back({{begin, end}, 0});
    for (const Range part :
         {Range{0, blocks / 3}, {blocks / 3, blocks - 1}, {blocks - 1, blocks}}) {
      if (part.size() <= 0) continue;
      cut.push_back({{begin + part.begin * 64, std::min(end, begin + part.end * 64)}, part.begin});
      of_tensor.push_back(i);
    }
  }
  const int64_t reads = CountsOfStandIn().reads;
  const std::vector<TreeSum> sums = GpuSquares(whole).Sums(there);
  CHECK(CountsOfStandIn().reads == reads + 1);
  const std::vector<TreeSum> parts = GpuSquares(cut).Sums(there);
  std::vector<TreeSum> joined(tensors.sizes.size());
  for (size_t i = 0; i < cut.size(); ++i) {
    for (const TreeNode& node : parts[i].nodes()) joined[of_tensor[i]].Add(node);
  }
  for (size_t i = 0; i < tensors.sizes.size(); ++i) {
    INFO("tensor of " << tensors.sizes[i]);
    TreeSum host;
    AddSquares(tensors.flat.const_data_ptr<float>() + tensors.offsets[i], tensors.sizes[i], 0,
               host);
    CHECK(sums[i].Total() == Approx(host.Total()).epsilon(1e-6));
    CHECK(joined[i].Total() == sums[i].Total());
  }
  testing::UseOwnKernels(true);
}

TEST_CASE("packed weights on a device, by own kernels and by LibTorch's", "[device]") {
  const bool own = GENERATE(true, false);
  testing::UseOwnKernels(own);
  testing::CheckPackedWeights(5, 192, kGpu);
  testing::CheckPackedWeights(40, 77, kGpu);  // no whole blocks
  for (const char* form : {"int8", "nf4", "gptq"}) {
    if (own) CHECK(HasRun(std::string("equipoise::unpack_") + form));
  }
  testing::UseOwnKernels(true);
}

TEST_CASE("masters on a device are split and joined to the CPU's bits", "[device]") {
  const at::Tensor bits = at::arange(1 << 17, at::kInt).mul_(-1640531535);  // all high halves
  const at::Tensor master = bits.view(at::kFloat), weight = at::empty({1 << 17}, at::kBFloat16);
  const at::Tensor remainder = at::empty({1 << 17}, at::kShort);
  SplitMaster(master, weight, remainder);
  const at::Tensor there = master.to(kGpu), rounded = weight.to(kGpu), rest = remainder.to(kGpu);
  rounded.zero_(), rest.zero_();
  SplitMaster(there, rounded, rest);
  CHECK(rounded.cpu().view(at::kShort).equal(weight.view(at::kShort)));
  CHECK(rest.cpu().equal(remainder));
  there.zero_();
  JoinMaster(rounded, rest, there);
  CHECK(there.cpu().view(at::kInt).equal(bits));
}

}  // namespace
}  // namespace equipoise
