#include "models/stages/features.h"

#include <ATen/ops/cat.h>

#include <utility>

#include "parallel/comm/communicator.h"

namespace equipoise {
namespace {

bool Keeps(const LayerSpec& spec) { return spec.output.features > spec.input.features; }
bool Adds(const LayerSpec& spec) { return spec.output.features < spec.input.features; }

// Where image tokens are among the rows of the language model; of a context rank its own among its
// own rows.
const at::Tensor& ImagePositions(const MicroBatch& batch) {
  return batch.features.positions.defined() ? batch.features.positions : batch.image_positions;
}

int64_t ImageTokens(const MicroBatch& batch) {
  return ImagePositions(batch).defined() ? ImagePositions(batch).size(0) : 0;
}

// Places of a micro-batch's image tokens among the rows of this rank. Where tensor ranks share out
// the rows, `elsewhere` [image tokens] marks the tokens of other ranks, which have any place: to
// pick this rank's own, the host would wait for the GPU.
struct ImageRows {
  at::Tensor places, elsewhere;
};

ImageRows ImageRowsOf(const MicroBatch& batch, const TensorParallel& tensor, int64_t rows) {
  if (!tensor.sequence) return {ImagePositions(batch), {}};
  const at::Tensor places = ImagePositions(batch).sub(tensor.rank * rows);
  return {places.clamp(0, rows - 1), places.lt(0).logical_or(places.ge(rows))};
}

void AddFeature(const at::Tensor& feature, const MicroBatch& batch, const TensorParallel& tensor,
                at::Tensor& rows) {
  const ImageRows image = ImageRowsOf(batch, tensor, rows.size(0));
  const bool some = image.elsewhere.defined();
  rows.index_add_(0, image.places,
                  some ? feature.masked_fill(image.elsewhere.unsqueeze(1), 0) : feature);
}

at::Tensor FeatureGradient(const at::Tensor& rows, const MicroBatch& batch,
                           const TensorParallel& tensor) {
  const ImageRows image = ImageRowsOf(batch, tensor, rows.size(0));
  at::Tensor gradient = rows.index_select(0, image.places);
  if (!image.elsewhere.defined()) return gradient;
  gradient.masked_fill_(image.elsewhere.unsqueeze(1), 0);
  tensor.group->AllReduce(gradient, ReduceOp::kSum).WaitOnStream();
  return gradient;
}

Flow SplitFeatures(const at::Tensor& all, const ActivationSpec& spec, const MicroBatch& batch) {
  const int64_t count = spec.features;
  if (!all.defined() || count == 0) return {all, {}};
  const bool text = spec.rows == RowKind::kTokens;
  const int64_t each = text ? ImageTokens(batch) : all.size(0) / (1 + count);
  const int64_t rows = all.size(0) - count * each;
  Flow flow = {all.narrow(0, 0, rows), {}};
  for (int64_t i = 0; each > 0 && i < count; ++i) {
    flow.features.push_back(all.narrow(0, rows + i * each, each));
  }
  return flow;
}

}  // namespace

Flow InputFlow(const at::Tensor& all, const LayerSpec& first, const MicroBatch& batch) {
  return first.takes_features ? Flow{all, {}} : SplitFeatures(all, first.input, batch);
}

Flow OutputFlow(const at::Tensor& all, const LayerSpec& last, const MicroBatch& batch) {
  return last.takes_features ? Flow{all, {}} : SplitFeatures(all, last.output, batch);
}

at::Tensor JoinFeatures(const Flow& flow) {
  if (!flow.rows.defined() || flow.features.empty()) return flow.rows;
  std::vector<at::Tensor> all = {flow.rows};
  all.insert(all.end(), flow.features.begin(), flow.features.end());
  return at::cat(all, /*dim=*/0);
}

at::Tensor EnterLayer(const Layer& layer, Flow& flow) {
  if (!layer.spec().takes_features) return std::move(flow.rows);
  return JoinFeatures(std::exchange(flow, {}));
}

void LeaveLayer(const Layer& layer, const MicroBatch& batch, at::Tensor output, bool last,
                Flow& flow) {
  const LayerSpec& spec = layer.spec();
  if (spec.takes_features && !last) {
    flow = SplitFeatures(output, spec.output, batch);
    return;
  }
  flow.rows = std::move(output);
  if (Keeps(spec) && flow.rows.defined()) flow.features.push_back(flow.rows);
  if (!Adds(spec) || flow.features.empty()) return;
  AddFeature(flow.features.front(), batch, layer.tensor(), flow.rows);
  flow.features.erase(flow.features.begin());
}

at::Tensor EnterBackward(const Layer& layer, const MicroBatch& batch, bool wanted, Flow& gradient) {
  const LayerSpec& spec = layer.spec();
  if (spec.takes_features) return JoinFeatures(std::exchange(gradient, {}));
  at::Tensor rows = std::move(gradient.rows);
  if (Adds(spec) && wanted && rows.defined() && ImageTokens(batch) > 0) {
    gradient.features.insert(gradient.features.begin(),
                             FeatureGradient(rows, batch, layer.tensor()));
  }
  if (!Keeps(spec) || gradient.features.empty()) return rows;
  rows = rows.add(gradient.features.back());
  gradient.features.pop_back();
  return rows;
}

void LeaveBackward(const Layer& layer, const MicroBatch& batch, at::Tensor input, bool first,
                   Flow& gradient) {
  const LayerSpec& spec = layer.spec();
  if (spec.takes_features && !first) {
    gradient = SplitFeatures(input, spec.input, batch);
  } else {
    gradient.rows = std::move(input);
  }
}

}  // namespace equipoise
