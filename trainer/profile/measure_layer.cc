#include "trainer/profile/measure_layer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/layers/micro_batch.h"
#include "models/stages/model.h"
#include "models/stages/stage.h"
#include "models/weights/weights.h"
#include "parallel/device.h"
#include "parallel/zero/adamw.h"
#include "trainer/device/memory_stats.h"

// Time and bytes of a layer are those of a chain of layers over its length. Bytes saved for
// backward are the difference of allocated memory before and after forward. A second backward with
// frozen weights separates the two gradients: backward_s - input_gradient_s is the time of the
// weight gradient.

namespace equipoise {
namespace {

constexpr int kMicroBatch = 0;
// Most layers of a chain. A single layer that is run repeatedly would find its weights and
// activations in the caches, unlike in training.
constexpr int kChain = 4;
constexpr int64_t kChainParameters = int64_t{1} << 28;  // most parameters of a chain

// The inputs of forward and backward.
struct Tensors {
  MicroBatch batch;
  at::Tensor input;     // undefined if the layer has none
  at::Tensor gradient;  // gradient of the output; undefined for the head
};

int64_t Bytes(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

struct Memory {
  int64_t kept = 0;  // bytes saved for backward: the input too, but not the output (the next input)
  int64_t work = 0;  // peak beyond `kept` during a pass: output, gradients, temporaries
};

// The number of layers from `first` on that are measured as a chain, all of one kind and shape.
int ChainLength(const std::vector<LayerSpec>& specs, int first) {
  const LayerSpec& layer = specs[static_cast<size_t>(first)];
  const int most =
      static_cast<int>(kChainParameters / std::max<int64_t>(1, layer.parameter_count()));
  const int limit = std::min(static_cast<int>(specs.size()), first + std::clamp(most, 1, kChain));
  int end = first + 1;
  const auto alike = [&layer](const LayerSpec& other) {
    return other.kind == layer.kind && other.shape == layer.shape;
  };
  while (end < limit && alike(specs[static_cast<size_t>(end)])) ++end;
  return end - first;
}

}  // namespace

MicroBatch RandomMicroBatch(const ModelConfig& config, const MeasuredRow& row) {
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
    batch.targets.narrow(0, 0, row.masked).fill_(kNoTarget);
    batch.position_ids = at::cat(positions);
  }
  if (row.tiles > 0) {
    const ImageSpec images = ImageSpecOf(config);
    const int64_t size = images.tile_size;
    if (images.lists_grids()) batch.image_grids = GridTensor(images.GridsOfTiles(row.tiles));
    if (images.has_grids()) {
      batch.pixel_values = at::randn({row.tiles * images.rows_per_tile, images.patch_numbers()});
    } else {
      batch.pixel_values = at::randn({row.tiles, config.vision.num_channels, size, size});
    }
    const int64_t image_tokens = images.LoadOfTiles(row.tiles).image_tokens;
    batch.image_positions = at::arange(std::min(tokens, image_tokens), at::kLong);
  }
  return batch;
}

LayerLoad MeasuredRow::load(const ImageSpec& images) const {
  LayerLoad load = SingleSegment(images.LoadOfTiles(tiles), /*tokens=*/0);
  for (const int64_t length : segments) {
    load.tokens += length;
    load.token_pairs += CausalPairs(length);
  }
  load.targets = load.tokens - masked;
  return load;
}

struct LayerMeter::Impl {
  Impl(const ModelConfig& model, int layer, at::ScalarType compute, const TensorParallel& ranks,
       at::Device on_device)
      : config(model),
        tensor(ranks.size),
        row_shares(ranks.sequence ? ranks.size : 1),
        images(ImageSpecOf(model)),
        spec(LayerSpecs(model)[static_cast<size_t>(layer)]),
        dtype(compute),
        device(on_device),
        length(ChainLength(LayerSpecs(model), layer)),
        stage(BuildLayers(model, {layer, layer + length}, ranks)),
        parameters(stage.parameters(), compute, /*shards=*/1, device) {
    InitializeWeights(parameters.parameters(), config, /*seed=*/0);
    parameters.UpdateCompute();
  }

  at::Tensor Forward(const Tensors& on) {
    return stage.Forward(kMicroBatch, on.batch, on.input, /*loss_scale=*/1.0);
  }
  Tensors MakeTensors(const MeasuredRow& row);
  // Seconds of forward and backward per layer.
  std::pair<double, double> Times(const Tensors& on);
  Memory MeasureMemory(const Tensors& on, Recompute recompute);
  void SetTrainable(bool trainable) {
    for (Parameter* p : parameters.parameters()) {
      p->trainable = trainable && MayTrain(p->role);
    }
  }

  ModelConfig config;
  int tensor;      // tensor-parallel ranks
  int row_shares;  // those that share out rows
  ImageSpec images;
  LayerSpec spec;
  at::ScalarType dtype;
  at::Device device;
  int length;   // number of layers of the chain
  Stage stage;  // the chain
  FlatParameters parameters;
};

// Makes the inputs, and runs both passes once as a warm-up.
Tensors LayerMeter::Impl::MakeTensors(const MeasuredRow& row) {
  Tensors on{OnDevice(RandomMicroBatch(config, row), device), {}, {}};
  on.batch.pixel_values = ToDevice(on.batch.pixel_values, device);
  const std::vector<int64_t> shape = spec.input.Shape(row.load(images), row_shares);
  const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(device, dtype); };
  if (!shape.empty()) on.input = random(shape).set_requires_grad(true);
  const at::Tensor output = Forward(on);
  EQUIPOISE_CHECK(output.defined(), "nothing to do for a ", spec.kind);
  if (output.dim() > 0) on.gradient = random(output.sizes());
  stage.Backward(kMicroBatch, on.gradient);
  return on;
}

std::pair<double, double> LayerMeter::Impl::Times(const Tensors& on) {
  const double forward = DeviceSeconds(device, [&] { Forward(on); });
  const double backward = DeviceSeconds(device, [&] { stage.Backward(kMicroBatch, on.gradient); });
  return {forward / length, backward / length};
}

Memory LayerMeter::Impl::MeasureMemory(const Tensors& on, Recompute recompute) {
  for (const auto& layer : stage.layers()) layer->recompute = recompute;
  const int64_t before = GetMemory(device).current_bytes - Bytes(on.input);
  MarkMemory(device);
  const at::Tensor output = Forward(on);
  const CpuMemory after = GetMemory(device);
  const int64_t kept_until = after.current_bytes - Bytes(output);
  MarkMemory(device);
  stage.Backward(kMicroBatch, on.gradient);
  const int64_t backward_peak = GetMemory(device).marked_peak_bytes + Bytes(on.gradient);
  for (const auto& layer : stage.layers()) layer->recompute = Recompute::kNone;
  return {std::max<int64_t>(0, kept_until - before) / length,
          std::max(after.marked_peak_bytes, backward_peak) - kept_until};
}

LayerMeter::LayerMeter(const ModelConfig& config, int layer, at::ScalarType dtype,
                       const TensorParallel& tensor, at::Device device)
    : impl_(std::make_unique<Impl>(config, layer, dtype, tensor, device)) {}
LayerMeter::~LayerMeter() = default;

LayerMeasurement LayerMeter::Measure(const MeasuredRow& row, bool memory) {
  const Tensors on = impl_->MakeTensors(row);
  LayerMeasurement measured;
  measured.layer_kind = impl_->spec.kind;
  measured.shape = impl_->spec.shape;
  measured.load = row.load(impl_->images);
  measured.tensor = impl_->tensor;
  std::tie(measured.forward_s, measured.backward_s) = impl_->Times(on);
  for (size_t i = 0; memory && i < measured.kept_bytes.size(); ++i) {
    const Memory bytes = impl_->MeasureMemory(on, static_cast<Recompute>(i));
    measured.kept_bytes[i] = bytes.kept;
    if (static_cast<Recompute>(i) == Recompute::kNone) measured.work_bytes = bytes.work;
  }
  if (on.input.defined()) {
    impl_->SetTrainable(false);
    measured.input_gradient_s = impl_->Times(on).second;
    impl_->SetTrainable(true);
  }
  measured.weight_gradient_s = std::max(0.0, measured.backward_s - measured.input_gradient_s);
  return measured;
}

int64_t LayerMeter::KeptBytes(const MeasuredRow& row, Recompute recompute) {
  return impl_->MeasureMemory(impl_->MakeTensors(row), recompute).kept;
}

double LayerMeter::OptimizerSecondsPerParameter() {
  FlatParameters& parameters = impl_->parameters;
  const std::vector<double> factors(parameters.parameters().size(), 1.0);
  AdamW optimizer(parameters, DecayGroups(parameters.parameters(), factors, /*weight_decay=*/0.05),
                  AdamWOptions());
  optimizer.TakeMasters();
  const auto step = [&] { optimizer.Step(/*lr=*/1e-4); };
  step();  // warm-up
  return DeviceSeconds(impl_->device, step) / static_cast<double>(parameters.gradient().numel());
}

}  // namespace equipoise
