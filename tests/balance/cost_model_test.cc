#include "balance/costs/cost_model.h"

#include <catch2/catch.hpp>

#include "balance/costs/gemm_time.h"
#include "models/families/families.h"
#include "models/families/presets.h"
#include "tests/balance/a100_layers.h"

namespace equipoise {
namespace {

// With nothing but arithmetic at the peak, the forward pass takes its FLOPs over the peak.
Cluster PeakOnly() {
  Cluster cluster = A100();
  cluster.multiprocessors = 0;
  cluster.gemm_efficiency = cluster.attention_efficiency = 1;
  cluster.memory_bytes_per_s = 1e30;
  cluster.launch_s = 0;
  return cluster;
}

TEST_CASE("products add up to the FLOPs and parameters of the layer specs", "[balance][cpu]") {
  for (const char* name : {"quickstart", "internvl2-26b", "internvl3-8b"}) {
    const CostModel costs(PresetConfig(name), PeakOnly(), {});
    for (int i = 0; i < costs.num_layers(); ++i) {
      const LayerSpec& spec = costs.specs()[static_cast<size_t>(i)];
      INFO(name << " " << spec.name);
      CHECK(costs.Parameters(i) == spec.parameter_count());
      if (spec.kind == kHead) continue;  // its forward makes the gradients too
      const double flops = costs.Times(i, kLoad).forward_s * costs.cluster().peak_flops;
      CHECK(flops == Approx(spec.ForwardFlops(kLoad)).margin(1));
    }
  }
}

TEST_CASE("the head costs by its targets, all else by tokens", "[balance][cpu]") {
  const CostModel costs(PresetConfig("internvl2-26b"), PeakOnly(), {});
  const int head = Find(costs, kHead), decoder = Find(costs, kDecoderBlock);
  const int64_t hidden = PresetConfig("internvl2-26b").text.hidden_size;
  LayerLoad half = kLoad, none = kLoad;
  half.targets = kLoad.tokens / 2;
  none.targets = 0;
  CHECK(costs.Times(head, half).forward_s == Approx(costs.Times(head, kLoad).forward_s / 2));
  CHECK(costs.Times(head, none).forward_s == Approx(0).margin(1e-12));
  CHECK(costs.KeptBytes(head, none, Recompute::kNone) == 2 * hidden * kLoad.tokens);
  CHECK(costs.KeptBytes(head, kLoad, Recompute::kNone) -
            costs.KeptBytes(head, half, Recompute::kNone) ==
        (2 * 2 * hidden + 4) * half.targets);
  CHECK(costs.WorkBytes(head, none) < costs.WorkBytes(head, half));
  CHECK(costs.Times(decoder, half).forward_s == costs.Times(decoder, kLoad).forward_s);
  CHECK(costs.KeptBytes(decoder, none, Recompute::kNone) ==
        costs.KeptBytes(decoder, kLoad, Recompute::kNone));
}

TEST_CASE("frozen layers have no weight gradient, and none at all before the first trained",
          "[balance][cpu]") {
  const ModelConfig model = PresetConfig("internvl2-26b");
  CostModel::Options options;
  options.frozen = {"vision", "llm"};
  const CostModel costs(model, A100(), options);
  const int vision = Find(costs, "vision_block");
  const int decoder = Find(costs, kDecoderBlock);
  CHECK(costs.Times(vision, kLoad).backward_s() == 0);
  CHECK(costs.KeptBytes(vision, kLoad, Recompute::kNone) == 0);
  CHECK(costs.RecomputeSeconds(vision, kLoad, Recompute::kFull) == 0);
  CHECK(costs.Times(decoder, kLoad).weight_gradient_s == 0);
  CHECK(costs.Times(decoder, kLoad).input_gradient_s > 0);
  const CostModel whole(model, A100(), {});
  CHECK(costs.KeptBytes(decoder, kLoad, Recompute::kNone) <
        whole.KeptBytes(decoder, kLoad, Recompute::kNone));
}

// Each of the head's passes is one product here.
TEST_CASE("a head's forward has the gradients that it computes", "[balance][cpu]") {
  const ModelConfig model = PresetConfig("internvl2-26b");
  const auto forward_flops = [&](std::vector<std::string> frozen) {
    CostModel::Options options;
    options.frozen = std::move(frozen);
    const CostModel costs(model, PeakOnly(), options);
    const LayerTimes times = costs.Times(costs.num_layers() - 1, kLoad);
    CHECK(times.backward_s() == 0);
    return times.forward_s * costs.cluster().peak_flops;
  };
  const double product = LayerSpecs(model).back().ForwardFlops(kLoad);
  CHECK(forward_flops({}) == Approx(3 * product));
  CHECK(forward_flops({"vision"}) == Approx(3 * product));
  CHECK(forward_flops({"vision", "llm"}) == Approx(2 * product));
  CHECK(forward_flops({"vision", "projector", "llm"}) == Approx(product));
}

TEST_CASE("tensor ranks share a layer and pay for their sums", "[balance][cpu]") {
  const ModelConfig model = PresetConfig("internvl2-26b");
  Cluster free = A100();
  free.intra_ring = {};
  CostModel::Options options;
  const CostModel one(model, free, options);
  options.tensor = 2;
  const CostModel two(model, free, options), paid(model, A100(), options);
  const int layer = Find(one, kDecoderBlock);
  CHECK(two.Times(layer, kLoad).forward_s < 0.62 * one.Times(layer, kLoad).forward_s);
  CHECK(two.Times(layer, kLoad).forward_s > 0.5 * one.Times(layer, kLoad).forward_s);
  // Two sums of 48 MiB in each direction at 230 GB/s: a rank sends as much as it has.
  const double sums = paid.Times(layer, kLoad).forward_s - two.Times(layer, kLoad).forward_s;
  CHECK(sums == Approx(2 * (4096.0 * 6144 * 2 / 230e9 + 2 * 2e-6)));
  CHECK(two.KeptBytes(layer, kLoad, Recompute::kNone) <
        one.KeptBytes(layer, kLoad, Recompute::kNone));
}

TEST_CASE("attention costs by segment", "[balance][cpu]") {
  const CostModel costs(PresetConfig("internvl2-26b"), A100(), {});
  const int layer = Find(costs, kDecoderBlock);
  LayerLoad packed = kLoad;
  packed.token_pairs /= 4;
  CHECK(costs.Times(layer, packed).forward_s < costs.Times(layer, kLoad).forward_s);
  CHECK(costs.Times(layer, {9, 0, 0}).forward_s == 0);
}

TEST_CASE("attention of short segments takes longer for its FLOPs", "[balance][cpu]") {
  Cluster cluster = A100();
  cluster.launch_s = 0;
  HalfCost half;
  half.attention_flops_per_pair = 4 * 4096;
  half.attention_heads = 32;
  const RunStyle style;
  const auto seconds_a_flop = [&](int64_t tokens) {
    const LayerLoad load = SingleSegment({}, tokens);
    return HalfSeconds(half, load, {cluster, style}).forward_s / half.AttentionFlops(load);
  };
  CHECK(seconds_a_flop(512) / seconds_a_flop(16384) == Approx(1.83).epsilon(0.02));
}

TEST_CASE("the first FlashAttention is slower, scores through memory slower still",
          "[balance][cpu]") {
  const ModelConfig model = PresetConfig("internvl2-26b");
  const auto costs_with = [&](AttentionKernel kernel, Selective selective) {
    CostModel::Options options;
    options.style.attention = kernel;
    options.style.selective = selective;
    return CostModel(model, A100(), options);
  };
  const CostModel flash = costs_with(AttentionKernel::kFlash, Selective::kNone);
  const CostModel flash1 = costs_with(AttentionKernel::kFlash1, Selective::kNone);
  const CostModel scores = costs_with(AttentionKernel::kScores, Selective::kNone);
  const CostModel core = costs_with(AttentionKernel::kScores, Selective::kCore);
  const int layer = Find(flash, kDecoderBlock);
  const auto step_s = [&](const CostModel& costs) {
    const LayerTimes times = costs.Times(layer, kLoad);
    return times.forward_s + times.backward_s();
  };
  CHECK(step_s(flash1) > step_s(flash));
  CHECK(step_s(scores) > step_s(flash1));
  const auto kept = [&](const CostModel& costs) {
    return costs.KeptBytes(layer, kLoad, Recompute::kNone);
  };
  // 5 a s^2 b (Korthikanti et al.): 48 heads, 4096 * 4097 pairs of query and key.
  CHECK(kept(scores) - kept(flash) == 5 * 48 * 4096LL * 4097);
  CHECK(kept(core) == kept(flash));
  CHECK(step_s(core) > step_s(scores));
}

TEST_CASE("cuDNN's attention is priced where it is taken, and faster on Hopper alone",
          "[balance][cpu]") {
  ClusterConfig hopper;
  hopper.preset = "h200";
  const ModelConfig model = PresetConfig("internvl2-26b");
  const auto forward_s = [&](const Cluster& cluster, const RunStyle& style, const char* kind) {
    CostModel::Options options;
    options.style = style;
    const CostModel costs(model, cluster, options);
    return costs.Times(Find(costs, kind), kLoad).forward_s;
  };
  RunStyle flash, tiles, all;
  tiles.cudnn_tiles = true;
  all.attention = AttentionKernel::kFlash3;
  const Cluster h200 = MakeCluster(hopper);
  CHECK(forward_s(h200, tiles, "vision_block") < forward_s(h200, flash, "vision_block"));
  CHECK(forward_s(h200, tiles, kDecoderBlock) == forward_s(h200, flash, kDecoderBlock));
  CHECK(forward_s(h200, all, kDecoderBlock) < forward_s(h200, flash, kDecoderBlock));
  CHECK(forward_s(h200, all, "vision_block") == forward_s(h200, tiles, "vision_block"));
  CHECK(forward_s(A100(), all, kDecoderBlock) == forward_s(A100(), flash, kDecoderBlock));
}

TEST_CASE(
    "products in fp8 are priced in blocks, but for weights' gradients, on devices that have it",
    "[balance][cpu]") {
  ClusterConfig hopper;
  hopper.preset = "h200";
  const ModelConfig model = PresetConfig("internvl2-26b");
  const auto times = [&](const Cluster& cluster, bool fp8, const char* kind) {
    CostModel::Options options;
    options.style.fp8 = fp8;
    const CostModel costs(model, cluster, options);
    // So much that the products save more than rounding the weights takes.
    LayerLoad load = kLoad;
    load.patches *= 8;
    load.tokens *= 8;
    load.image_tokens *= 8;
    return costs.Times(Find(costs, kind), load);
  };
  const Cluster h200 = MakeCluster(hopper);
  for (const char* kind : {"vision_block", kDecoderBlock}) {
    const LayerTimes bf16 = times(h200, false, kind), fp8 = times(h200, true, kind);
    CHECK(fp8.forward_s < bf16.forward_s);
    CHECK(fp8.input_gradient_s < bf16.input_gradient_s);
    CHECK(fp8.weight_gradient_s == bf16.weight_gradient_s);
    CHECK(times(A100(), true, kind).forward_s == times(A100(), false, kind).forward_s);
  }
  CHECK(times(h200, true, "head").forward_s == times(h200, false, "head").forward_s);
}

TEST_CASE("packed weights are unpacked in each pass, which takes GPUs time", "[balance][cpu]") {
  ModelConfig model = PresetConfig("internvl2-26b");
  model.lora.targets = {"all-linear"};
  const auto longer_by = [&](bool own_kernels) {
    const auto times = [&](Packing packing) {
      model.quantize = {packing, {"llm"}};
      CostModel::Options options;
      options.style.program = &ThisProgram(own_kernels);
      const CostModel costs(model, A100(), options);
      return std::pair(costs.Times(Find(costs, kDecoderBlock), kLoad),
                       costs.Times(Find(costs, "vision_block"), kLoad));
    };
    const auto [plain, vision] = times(Packing::kNone);
    const auto [int8, int8_vision] = times(Packing::kInt8);
    const auto [nf4, nf4_vision] = times(Packing::kNf4);
    const double of_int8 = int8.forward_s - plain.forward_s;
    const double of_nf4 = nf4.forward_s - plain.forward_s;
    // Once in forward and once in backward.
    CHECK(of_int8 > 0);
    CHECK(int8.input_gradient_s - plain.input_gradient_s == Approx(of_int8));
    CHECK(nf4.input_gradient_s - plain.input_gradient_s == Approx(of_nf4));
    CHECK(nf4_vision.forward_s == vision.forward_s);
    return std::pair(of_int8, of_nf4);
  };
  const auto [int8, nf4] = longer_by(/*own_kernels=*/true);
  const auto [int8_aten, nf4_aten] = longer_by(/*own_kernels=*/false);
  // 3 and 2.5 bytes for each weight; 44 and 76 by LibTorch's kernels.
  CHECK(nf4 == Approx(int8 * 2.5 / 3));
  CHECK(int8_aten == Approx(int8 * 44 / 3));
  CHECK(nf4_aten == Approx(int8 * 76 / 3));
}

TEST_CASE("sequence-parallel ranks share out rows, context-parallel ones the sequence",
          "[balance][cpu]") {
  const ModelConfig model = PresetConfig("internvl2-26b");
  CostModel::Options options;
  options.tensor = 4;
  const CostModel tensor(model, A100(), options);
  options.style.sequence_parallel = true;
  const CostModel sequence(model, A100(), options);
  const int layer = Find(tensor, kDecoderBlock);
  const auto kept = [&](const CostModel& costs, Recompute recompute) {
    return costs.KeptBytes(layer, kLoad, recompute);
  };
  // Inputs and normalized inputs of both halves: four tensors, of which a quarter is left.
  const int64_t rows = 4096 * 6144 * 2;
  CHECK(kept(tensor, Recompute::kNone) - kept(sequence, Recompute::kNone) == 4 * rows * 3 / 4);
  CHECK(kept(sequence, Recompute::kFull) == rows / 4);
  CHECK(sequence.Times(layer, kLoad).forward_s < tensor.Times(layer, kLoad).forward_s);
  CHECK(sequence.BoundaryBytes(layer, kLoad) == tensor.BoundaryBytes(layer, kLoad) / 4);
  // The input of products is gathered again in backward.
  const auto weights_s = [&](const CostModel& costs) {
    return costs.Times(layer, kLoad).weight_gradient_s;
  };
  CHECK(weights_s(sequence) > weights_s(tensor));
  // Encoders have whole rows here, and share them out in other programs.
  const int block = Find(tensor, "vision_block");
  const auto kept_of_block = [&](const CostModel& costs) {
    return costs.KeptBytes(block, kLoad, Recompute::kFull);
  };
  CHECK(kept_of_block(sequence) == kept_of_block(tensor));
  CHECK(sequence.BoundaryBytes(block, kLoad) == tensor.BoundaryBytes(block, kLoad));
  options.style.program = &PublishedSystems();
  const CostModel published(model, A100(), options);
  CHECK(kept_of_block(published) == kept_of_block(tensor) / 4);
  CostModel::Options two;
  two.style.context = 2;
  const CostModel whole(model, A100(), {}), context(model, A100(), two);
  CHECK(kept(context, Recompute::kNone) == Approx(kept(whole, Recompute::kNone) / 2));
  // Of 48 heads of queries and 2 x 8 of keys and values half go to the other rank, and so does the
  // result of attention; nothing runs beside that.
  const double half_s = whole.Times(layer, kLoad).forward_s / 2;
  const double bytes = kLoad.tokens / 2 * (2 * 48 + 2 * 8) * 128 * 2 / 2;
  const LinkModel& link = A100().intra;
  CHECK(context.Times(layer, kLoad).forward_s ==
        Approx(half_s + 2 * link.latency_s + bytes / link.bytes_per_s).epsilon(0.05));
}

TEST_CASE("context ranks that share out rows of a head have copies of its keys", "[balance][cpu]") {
  const ModelConfig model = PresetConfig("internvl2-26b");  // 48 heads, 8 of keys, of 128
  CostModel::Options options;
  options.element_bytes = 2;
  const CostModel alone(model, A100(), options);
  options.style.context = 8;
  const CostModel heads(model, A100(), options);
  options.style.context = 32;  // 16 head groups, of 2 ranks each
  const CostModel rows(model, A100(), options);
  const int layer = Find(alone, kDecoderBlock);
  const auto kept = [&](const CostModel& costs) {
    return static_cast<double>(costs.KeptBytes(layer, kLoad, Recompute::kNone));
  };
  const double keys_values = 2 * 8 * 128 * kLoad.tokens * 2.0;
  CHECK(kept(heads) == Approx(kept(alone) / 8));
  CHECK(kept(rows) == Approx(kept(alone) / 32 + 3 * keys_values / 32));  // 4 ranks have each key
}

TEST_CASE("plans are priced as this program runs", "[balance][cpu]") {
  const CostModel::Options options;
  CHECK(std::string(options.style.program->name) == "this program");
  CHECK(std::string(PublishedSystems().name) == "published systems");
  const ModelConfig model = PresetConfig("internvl2-26b");
  CostModel::Options published;
  published.style.program = &PublishedSystems();
  const CostModel ours(model, A100(), options), theirs(model, A100(), published);
  // LayerNorm's and layer scale's backward are not fused here; a decoder block is as theirs.
  const int layer = Find(ours, "vision_block"), decoder = Find(ours, kDecoderBlock);
  CHECK(theirs.Times(layer, kLoad).backward_s() < ours.Times(layer, kLoad).backward_s());
  CHECK(theirs.Times(decoder, kLoad).forward_s == ours.Times(decoder, kLoad).forward_s);
}

TEST_CASE("plans are priced by the kernels that a run takes", "[balance][cpu]") {
  const RunStyle own;
  RunStyle aten;
  aten.program = &ThisProgram(/*own_kernels=*/false);
  const auto costs_with = [](const RunStyle& style) {
    CostModel::Options options;
    options.style = style;
    return CostModel(PresetConfig("internvl2-26b"), A100(), options);
  };
  const CostModel ours(costs_with(own)), theirs(costs_with(aten));
  for (const char* kind : {kDecoderBlock, "head"}) {
    const int layer = Find(ours, kind);
    CHECK(ours.Times(layer, kLoad).forward_s < theirs.Times(layer, kLoad).forward_s);
  }
  const int head = Find(ours, "head");
  CHECK(4 * ours.WorkBytes(head, kLoad) == theirs.WorkBytes(head, kLoad));
  // Norm 4; gradient 4; weight, remainder and moments both ways.
  CHECK(OptimizerMovedBytes(own, 2) == 4 + 4 + 2 * (2 + 2 + 4 + 4));
  CHECK(OptimizerMovedBytes(own, 4) == 4 + 4 + 2 * (4 + 4 + 4));
  CHECK(OptimizerMovedBytes(aten, 2) == OptimizerMovedBytes(own, 2) + 36);
  RunStyle rounded = own;
  rounded.moment_bytes = 2;
  CHECK(OptimizerMovedBytes(rounded, 2) == 4 + 4 + 2 * (2 + 2 + 2 + 2));
  // Codes of 8 bits take LibTorch's kernels, with or without own ones.
  for (RunStyle codes : {own, aten}) {
    codes.moment_bytes = 1 + 4.0 / 256;
    CHECK(OptimizerMovedBytes(codes, 2) == OptimizerMovedBytes(aten, 2) + 2 * (5 + 8 + 8 + 35));
  }
  // fp16: the fp32 master in place of weight and remainder, and then it is read and the weight
  // written.
  for (RunStyle whole : {own, aten}) {
    whole.whole_masters = true;
    CHECK(OptimizerMovedBytes(whole, 2) == 4 + 4 + 2 * (4 + 4 + 4) + 4 + 2);
  }
}

TEST_CASE("weights without masters are updated with fewer bytes", "[balance][cpu]") {
  RunStyle own;
  own.without_masters = true;
  // Norm 4; gradient 4; weight and moments both ways.
  CHECK(OptimizerMovedBytes(own, 2) == 4 + 4 + 2 * (2 + 4 + 4));
  RunStyle aten = own;
  aten.program = &ThisProgram(/*own_kernels=*/false);
  CHECK(OptimizerMovedBytes(aten, 2) > OptimizerMovedBytes(own, 2));
  own.moment_bytes = 2;
  CHECK(OptimizerMovedBytes(own, 2) == 4 + 4 + 2 * (2 + 2 + 2));
  for (RunStyle* codes : {&own, &aten}) codes->moment_bytes = 1 + 4.0 / 256;
  CHECK(OptimizerMovedBytes(own, 2) == OptimizerMovedBytes(aten, 2));
}

TEST_CASE("bytes of a trained parameter in every precision", "[balance][cpu]") {
  RunStyle style;
  const auto bytes = [&](int64_t element) {  // beside the fp32 gradient
    return static_cast<double>(element) + 4 + OptimizerStateBytes(style, element);
  };
  CHECK(bytes(4) == 16);  // fp32: a weight is its master
  CHECK(bytes(2) == 16);  // bf16: weight and remainder
  style.whole_masters = true;
  CHECK(bytes(2) == 18);  // fp16: weight and master
  style.moment_bytes = 2;
  CHECK(bytes(2) == 14);
  style.whole_masters = false;
  style.moment_bytes = 1 + 4.0 / 256;  // codes, and their scales
  CHECK(bytes(4) == 10.03125);
  CHECK(bytes(2) == 10.03125);
  CHECK(OffloadedStateBytes(style, 2) == 6.03125);  // with the values
  style.without_masters = true;
  CHECK(bytes(2) == 8.03125);
  style.moment_bytes = 2;
  CHECK(bytes(2) == 10);
  CHECK(OffloadedStateBytes(style, 2) == 6);
  style.moment_bytes = 4;
  CHECK(bytes(2) == 14);
}

TEST_CASE("products that do not fill tiles or waves cost more", "[balance][cpu]") {
  CHECK(TileEfficiency({4096, 4096, 4096}, 0) == 1);
  // 27 x 32 tiles of 256 x 128: eight full waves of 108.
  CHECK(TileEfficiency({6912, 4096, 4096}, 108) == 1);
  CHECK(TileEfficiency({6913, 4096, 4096}, 108) < 0.95);
  CHECK(TileEfficiency({16, 4096, 4096}, 108) < 0.2);
  // Few rows are bound by reading the weights.
  const Cluster cluster = A100();
  const double seconds = GemmSeconds({1, 8192, 8192}, cluster, 2);
  CHECK(seconds >= 8192.0 * 8192 * 2 / cluster.memory_bytes_per_s);
  CHECK(GemmSeconds({0, 8192, 8192}, cluster, 2) == 0);
}

}  // namespace
}  // namespace equipoise
