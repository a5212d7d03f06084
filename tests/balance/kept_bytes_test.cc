// What the cost model says a layer keeps and needs, without a profile, beside what it does keep.

#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <catch2/catch.hpp>
#include <map>
#include <sstream>
#include <string>

#include "balance/costs/cost_model.h"
#include "models/families/presets.h"
#include "models/ops/matrix_product.h"
#include "tests/balance/lone_rank.h"
#include "trainer/device/memory_stats.h"
#include "trainer/profile/measure_layer.h"

namespace equipoise {
namespace {

// One layer of each kind, narrow enough to be quick; `large`: InternViT-6B's form over LLaMA, with
// norms of q and k over Qwen3.
ModelConfig Model(bool large, bool text_norms) {
  ModelConfig config = PresetConfig(large ? "internvl2-26b" : "quickstart");
  config.vision.num_hidden_layers = config.text.num_hidden_layers = 1;
  config.text.use_qk_norm = text_norms;
  if (!large) return config;
  config.vision.hidden_size = 320;
  config.vision.intermediate_size = 1280;
  config.vision.num_attention_heads = 5;
  config.vision.image_size = 112;
  config.text.hidden_size = 384;
  config.text.intermediate_size = 1024;
  config.text.num_attention_heads = 6;
  config.text.num_key_value_heads = 2;
  config.text.head_dim = 64;
  config.text.vocab_size = 3000;
  return config;
}

// Qwen3-VL's form; with features of all three blocks, or none.
ModelConfig Qwen3Vl(bool features) {
  ModelConfig config = PresetConfig("qwen3_vl-2b");
  config.vision.hidden_size = 128;
  config.vision.intermediate_size = 320;
  config.vision.num_attention_heads = 4;
  config.vision.num_hidden_layers = 3;
  config.vision.deepstack_visual_indexes.clear();
  config.text.deepstack_layers = 0;
  if (features) {
    config.vision.deepstack_visual_indexes = {0, 1, 2};
    config.text.deepstack_layers = 3;
  }
  config.text.hidden_size = 192;
  config.text.intermediate_size = 512;
  config.text.num_attention_heads = 4;
  config.text.num_key_value_heads = 2;
  config.text.head_dim = 64;
  config.text.mrope_section = {12, 10, 10};
  config.text.num_hidden_layers = 4;
  config.text.vocab_size = 2000;
  config.image_token_id = 1990;
  config.video_token_id = 1991;
  return config;
}

std::vector<MeasuredRow> RowsFor(const LayerSpec& spec) {
  if (spec.component != Component::kLanguageModel) return {{6, {}}};
  if (spec.kind == kTokenEmbedding) return {{3, {384, 128}}};
  if (spec.kind == kDecoderBlock) return {{0, {384, 128}}};
  return {{0, {384, 128}}, {0, {384, 128}, /*masked=*/480}};
}

// 16-bit products pad their rows (models/ops/row_padding.h), which is not counted.
struct Case {
  bool large, text_norms;
  at::ScalarType dtype;
  double tolerance;  // of kept bytes
};

// Whether a product in `dtype` takes memory beside its result: on CPUs without instructions for it
// oneDNN widens the factors of a 16-bit product, which the cost model does not count.
bool WidensProducts(at::ScalarType dtype) {
  const at::Tensor a = at::ones({256, 256}, dtype);
  MarkMemory(at::kCPU);
  const at::Tensor product = at::mm(a, a);
  const CpuMemory memory = GetMemory(at::kCPU);
  return memory.marked_peak_bytes > memory.current_bytes + static_cast<int64_t>(a.nbytes()) / 2;
}

// How often the temporaries that a gated block in 16 bits needs may be counted. SwiGLU's are
// LibTorch's, and the program's own row kernel has none; on a CPU without AVX-512, where LibTorch
// computes 16-bit products by a kernel of its own instead of oneDNN's, 0.61 of them are needed
// where ranks share out rows.
double GatedBound() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx512f")) return 1.75;
#endif
  return 1.5;
}

std::string Named(const LayerSpec& spec, const LayerMeasurement& measured, const Case& with) {
  std::ostringstream text;
  text << spec.name << (with.large ? " large " : " ") << (with.text_norms ? "norms " : "")
       << with.dtype << ", " << measured.load.targets << " targets";
  return text.str();
}

// Returns what was measured.
LayerMeasurement CheckKept(const CostModel& costs, int layer, LayerMeter& meter,
                           const MeasuredRow& row, const Case& with) {
  const LayerMeasurement measured = meter.Measure(row);
  INFO(Named(costs.specs()[static_cast<size_t>(layer)], measured, with));
  std::map<Recompute, int64_t> kept_bytes = {
      {Recompute::kElementwise, meter.KeptBytes(row, Recompute::kElementwise)}};
  for (size_t kind = 0; kind < measured.kept_bytes.size(); ++kind)
    kept_bytes[static_cast<Recompute>(kind)] = measured.kept_bytes[kind];
  for (const auto& [kind, bytes] : kept_bytes) {
    const auto counted = static_cast<double>(costs.KeptBytes(layer, measured.load, kind));
    const auto kept = static_cast<double>(bytes);
    INFO("recompute " << ToString(kind) << ": counted " << counted << ", measured " << kept);
    CHECK(std::abs(counted - kept) < with.tolerance * kept + 8192);
  }
  return measured;
}

void CheckBytes(const CostModel& costs, int layer, LayerMeter& meter, const MeasuredRow& row,
                const Case& with) {
  const LayerMeasurement measured = CheckKept(costs, layer, meter, row, with);
  const LayerSpec& spec = costs.specs()[static_cast<size_t>(layer)];
  INFO(Named(spec, measured, with));
  const auto counted = static_cast<double>(costs.WorkBytes(layer, measured.load));
  const auto work = static_cast<double>(measured.work_bytes);
  INFO("work counted " << counted << ", measured " << work);
  // The 16-bit weight gradient of patches needs more than is counted.
  const bool patches = spec.kind == "patch_embedding" && with.dtype != at::kFloat;
  if (!WidensProducts(with.dtype)) CHECK(counted > (patches ? 0.4 : 0.75) * work);
  const bool gated = spec.kind == kDecoderBlock && with.dtype != at::kFloat;
  CHECK(counted < (gated ? GatedBound() : 1.25) * work + 8192);
}

// By LibTorch's products, as on most CPUs: where gradients of bf16 weights are summed as they are
// computed, a temporary less is needed than is counted.
struct ByLibTorch {
  ByLibTorch() { ops::UseOneDnn(false); }
  ~ByLibTorch() { ops::UseOneDnn(true); }
};

// Two tensor ranks that share out the rows, of which this is the first.
TEST_CASE("layers that share out rows keep the bytes that the cost model counts",
          "[balance][cpu]") {
  CountCpuMemory();
  const ByLibTorch products;
  at::set_num_threads(1);
  for (const Case& with :
       {Case{false, false, at::kFloat, 0.02}, Case{true, true, at::kFloat, 0.02},
        Case{false, false, at::kBFloat16, 0.08}, Case{true, true, at::kBFloat16, 0.08}}) {
    const ModelConfig model = Model(with.large, with.text_norms);
    CostModel::Options options;
    options.element_bytes = static_cast<int64_t>(c10::elementSize(with.dtype));
    options.tensor = 2;
    options.style.sequence_parallel = true;
    const CostModel costs(model, MakeCluster({}), options);
    testing::LoneTensorRank group(2);
    for (int layer = 0; layer < costs.num_layers(); ++layer) {
      const LayerSpec& spec = costs.specs()[static_cast<size_t>(layer)];
      if (spec.component != Component::kLanguageModel) continue;
      LayerMeter meter(model, layer, with.dtype, {&group, 0, 2, /*sequence=*/true});
      for (const MeasuredRow& row : RowsFor(spec)) {
        CheckBytes(costs, layer, meter, row, with);
      }
    }
  }
}

TEST_CASE("layers keep the bytes that the cost model counts", "[balance][cpu]") {
  CountCpuMemory();
  const ByLibTorch products;
  at::set_num_threads(1);
  for (const Case& with :
       {Case{false, false, at::kFloat, 0.02}, Case{true, false, at::kFloat, 0.02},
        Case{true, true, at::kFloat, 0.02}, Case{false, false, at::kBFloat16, 0.08},
        Case{true, false, at::kBFloat16, 0.08}, Case{true, true, at::kBFloat16, 0.08}}) {
    const ModelConfig model = Model(with.large, with.text_norms);
    CostModel::Options options;
    options.element_bytes = static_cast<int64_t>(c10::elementSize(with.dtype));
    const CostModel costs(model, MakeCluster({}), options);
    for (int layer = 0; layer < costs.num_layers(); ++layer) {
      LayerMeter meter(model, layer, with.dtype);
      for (const MeasuredRow& row : RowsFor(costs.specs()[static_cast<size_t>(layer)])) {
        CheckBytes(costs, layer, meter, row, with);
      }
    }
  }
}

// A layer that features pass by is measured without them: alone in its stage, it has them behind
// its rows, which are then copied. What the patch embedding keeps are the micro-batch's pixels, not
// the layer's. Temporaries are not compared: they are counted by less than a half, or by twice, in
// some of these layers.
TEST_CASE("layers of Qwen3-VL keep the bytes that the cost model counts", "[balance][cpu]") {
  CountCpuMemory();
  const ByLibTorch products;
  at::set_num_threads(1);
  const bool features = GENERATE(false, true);
  const ModelConfig model = Qwen3Vl(features);
  for (const Case& with :
       {Case{false, true, at::kFloat, 0.02}, Case{false, true, at::kBFloat16, 0.08}}) {
    CostModel::Options options;
    options.element_bytes = static_cast<int64_t>(c10::elementSize(with.dtype));
    const CostModel costs(model, MakeCluster({}), options);
    for (int layer = 0; layer < costs.num_layers(); ++layer) {
      const LayerSpec& spec = costs.specs()[static_cast<size_t>(layer)];
      if (features && (spec.kind == "vision_block" || spec.kind == kTokenEmbedding)) continue;
      if (spec.kind == "patch_embedding") continue;
      LayerMeter meter(model, layer, with.dtype);
      MeasuredRow row = RowsFor(spec).front();
      row.tiles *= 10;  // tokens
      CheckKept(costs, layer, meter, row, with);
    }
  }
}

TEST_CASE("adapters keep the bytes that the cost model counts", "[balance][cpu]") {
  CountCpuMemory();
  const ByLibTorch products;
  at::set_num_threads(1);
  ModelConfig model = Model(/*large=*/false, /*text_norms=*/false);
  model.lora.targets = {"all-linear"};
  model.lora.rank = 8;
  model.lora.dora = GENERATE(false, true);
  const Case with = {false, false, at::kFloat, 0.02};
  CostModel::Options options;
  options.element_bytes = 4;
  const CostModel costs(model, MakeCluster({}), options);
  for (int layer = 0; layer < costs.num_layers(); ++layer) {
    const LayerSpec& spec = costs.specs()[static_cast<size_t>(layer)];
    if (!spec.has_halves) continue;
    LayerMeter meter(model, layer, with.dtype);
    for (const MeasuredRow& row : RowsFor(spec)) {
      const LayerMeasurement measured = meter.Measure(row);
      INFO(spec.name << (model.lora.dora ? ", DoRA" : ", LoRA"));
      const auto counted =
          static_cast<double>(costs.KeptBytes(layer, measured.load, Recompute::kNone));
      CHECK(counted == Approx(static_cast<double>(measured.kept_bytes[0])).epsilon(0.02));
      const auto fewer = static_cast<double>(meter.KeptBytes(row, Recompute::kElementwise));
      CHECK(static_cast<double>(costs.KeptBytes(layer, measured.load, Recompute::kElementwise)) ==
            Approx(fewer).epsilon(0.02));
      CHECK(fewer < 0.9 * counted);  // DoRA keeps results of products too
    }
  }
}

}  // namespace
}  // namespace equipoise
