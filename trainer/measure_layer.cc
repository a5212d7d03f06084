#include "trainer/measure_layer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>

#include "balance/layer_shape.h"
#include "configs/error.h"
#include "models/model.h"
#include "models/stage.h"
#include "models/weights.h"
#include "parallel/zero/adamw.h"
#include "trainer/memory_stats.h"

namespace equipoise {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMicroBatch = 0;

double SecondsOf(const std::function<void()>& work) {
  const Clock::time_point start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

MicroBatch BatchOf(const ModelConfig& config, const MeasuredRow& row) {
  MicroBatch batch;
  batch.cu_seqlens = {0};
  std::vector<at::Tensor> positions;
  for (const int64_t length : row.segments) {
    batch.cu_seqlens.push_back(batch.cu_seqlens.back() + length);
    positions.push_back(at::arange(length, at::kLong));
  }
  const int64_t tokens = batch.cu_seqlens.back();
  if (tokens > 0) {
    batch.input_ids = at::randint(config.text.vocab_size, {tokens}, at::kLong);
    batch.targets = at::randint(config.text.vocab_size, {tokens}, at::kLong);
    batch.position_ids = at::cat(positions);
  }
  if (row.tiles > 0) {
    const int64_t size = config.vision.image_size;
    batch.pixel_values = at::randn({row.tiles, config.vision.num_channels, size, size});
    const int64_t image_tokens = std::min(tokens, row.tiles * config.tokens_per_tile());
    batch.image_positions = at::arange(image_tokens, at::kLong);
  }
  return batch;
}

// Shape of a layer's input; empty where it has none.
std::vector<int64_t> InputShape(const ModelConfig& config, LayerKind kind, const MeasuredRow& row) {
  const LayerLoad load = row.load();
  switch (kind) {
    case LayerKind::kPatchEmbedding:
      return {};
    case LayerKind::kVisionBlock:
    case LayerKind::kProjector:
      return {load.tiles, config.vision.patches() + 1, config.vision.hidden_size};
    case LayerKind::kTokenEmbedding:
      if (load.tiles == 0) return {};
      return {load.tiles * config.tokens_per_tile(), config.text.hidden_size};
    default:
      return {load.tokens, config.text.hidden_size};
  }
}

// One layer of a model as a stage of its own.
class SingleLayer {
 public:
  SingleLayer(const ModelConfig& config, int layer, at::ScalarType dtype)
      : stage_(BuildLayers(config, {layer, layer + 1})), parameters_(stage_.parameters(), dtype) {
    InitializeWeights(parameters_.parameters(), config, /*seed=*/0);
    parameters_.UpdateCompute();
  }

  void set_recompute(Recompute recompute) { stage_.layers()[0]->recompute = recompute; }
  void set_trainable(bool trainable) {
    for (Parameter* p : parameters_.parameters()) p->trainable = trainable;
  }
  at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input) {
    return stage_.Forward(kMicroBatch, batch, input, /*loss_scale=*/1.0);
  }
  void Backward(const at::Tensor& gradient) { stage_.Backward(kMicroBatch, gradient); }
  FlatParameters& parameters() { return parameters_; }

 private:
  Stage stage_;
  FlatParameters parameters_;
};

// A layer with the tensors that it is run on.
struct Bench {
  SingleLayer layer;
  MicroBatch batch;
  at::Tensor input, gradient;  // undefined where the layer has none

  Bench(const ModelConfig& config, int index, const MeasuredRow& row, at::ScalarType dtype)
      : layer(config, index, dtype), batch(BatchOf(config, row)) {
    const LayerKind kind = LayerSpecs(config)[static_cast<size_t>(index)].kind;
    const std::vector<int64_t> shape = InputShape(config, kind, row);
    if (!shape.empty()) input = at::randn(shape).to(dtype).set_requires_grad(true);
    const at::Tensor output = layer.Forward(batch, input);
    EQUIPOISE_CHECK(output.defined(), "nothing to do for layer ", index);
    if (output.dim() > 0) gradient = at::randn(output.sizes()).to(dtype);
    layer.Backward(gradient);
  }

  // Median seconds of forward and of backward.
  std::pair<double, double> Times(int repetitions) {
    std::vector<double> forward, backward;
    for (int i = 0; i < repetitions; ++i) {
      forward.push_back(SecondsOf([&] { layer.Forward(batch, input); }));
      backward.push_back(SecondsOf([&] { layer.Backward(gradient); }));
    }
    return {Median(forward), Median(backward)};
  }

  struct Memory {
    int64_t kept = 0;  // from forward to backward: the input, but not the output, the next layer's
    int64_t work = 0;  // the most beyond it while a pass runs: output, gradients, temporaries
  };
  Memory MeasureMemory(Recompute recompute) {
    const auto bytes = [](const at::Tensor& t) {
      return t.defined() ? static_cast<int64_t>(t.nbytes()) : 0;
    };
    layer.set_recompute(recompute);
    const int64_t before = GetCpuMemory().current_bytes - bytes(input);
    MarkCpuMemory();
    const at::Tensor output = layer.Forward(batch, input);
    const CpuMemory after = GetCpuMemory();
    const int64_t kept_until = after.current_bytes - bytes(output);
    MarkCpuMemory();
    layer.Backward(gradient);
    const int64_t backward_peak = GetCpuMemory().marked_peak_bytes + bytes(gradient);
    layer.set_recompute(Recompute::kNone);
    return {std::max<int64_t>(0, kept_until - before),
            std::max(after.marked_peak_bytes, backward_peak) - kept_until};
  }
};

}  // namespace

LayerLoad MeasuredRow::load() const {
  LayerLoad load;
  load.tiles = tiles;
  for (const int64_t length : segments) {
    load.tokens += length;
    load.token_pairs += SingleSegment(0, length).token_pairs;
  }
  return load;
}

LayerMeasurement MeasureLayer(const ModelConfig& config, int layer, const MeasuredRow& row,
                              const MeasureOptions& options) {
  Bench bench(config, layer, row, options.dtype);
  LayerMeasurement measured;
  const LayerSpec spec = LayerSpecs(config)[static_cast<size_t>(layer)];
  measured.layer_kind = LayerKindName(spec.kind);
  measured.shape = LayerShape(config, spec.kind);
  measured.load = row.load();
  std::tie(measured.forward_s, measured.backward_s) = bench.Times(options.repetitions);
  for (size_t kind = 0; kind < measured.kept_bytes.size(); ++kind) {
    const Bench::Memory memory = bench.MeasureMemory(static_cast<Recompute>(kind));
    measured.kept_bytes[kind] = memory.kept;
    if (kind == 0) measured.work_bytes = memory.work;
  }
  if (bench.input.defined()) {
    bench.layer.set_trainable(false);
    measured.input_gradient_s = bench.Times(options.repetitions).second;
  }
  measured.weight_gradient_s = std::max(0.0, measured.backward_s - measured.input_gradient_s);
  return measured;
}

double MeasureOptimizer(const ModelConfig& config, int layer, const MeasureOptions& options) {
  SingleLayer single(config, layer, options.dtype);
  FlatParameters& parameters = single.parameters();
  const std::vector<double> factors(parameters.parameters().size(), 1.0);
  AdamW optimizer(parameters, DecayGroups(parameters.parameters(), factors, /*weight_decay=*/0.05),
                  AdamWOptions());
  const auto step = [&] {
    optimizer.Step(/*lr=*/1e-4);
    parameters.UpdateCompute();
  };
  step();
  std::vector<double> seconds;
  for (int i = 0; i < options.repetitions; ++i) seconds.push_back(SecondsOf(step));
  return Median(seconds) / static_cast<double>(parameters.gradient().numel());
}

}  // namespace equipoise
