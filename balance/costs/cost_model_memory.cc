#include <algorithm>
#include <cmath>

#include "balance/costs/cost_model.h"
#include "models/spec/logits_chunk.h"
#include "models/spec/tensor_parallel.h"

// Bytes of a layer: kept from forward to backward, on the device or the host, temporary, and passed
// on to the next (docs/cost_model.md).

namespace equipoise {
namespace {

// What keeps the same, on the device.
Recompute KeptAs(Recompute kind) {
  if (kind == Recompute::kOffload) return Recompute::kNone;
  return kind == Recompute::kFullOffload ? Recompute::kFull : kind;
}

// Peak bytes of a chunk of logits (models/ops/cross_entropy.cc): two fp32 copies during the
// softmax; then the fp32 gradient, its rounded copy and, on a CPU, the weight's gradient. Over
// tensor ranks the softmax takes the logits' place, and the rows and their gradient count beside
// so few logits. By own kernels the gradient takes the logits' place.
double LogitsBytes(const LayerSpec& work, const LayerLoad& load, const CostModel::Options& options,
                   bool gpu) {
  const auto element_bytes = static_cast<double>(options.element_bytes);
  const int64_t columns = work.mlp.products[0].n;
  const auto vocabulary = static_cast<double>(columns);
  const auto hidden = static_cast<double>(work.mlp.products[0].k);
  const auto rows = static_cast<double>(std::min(load.targets, LogitsChunkRows(columns, gpu)));
  if (gpu && !options.style.program->copies_logits) return element_bytes * rows * vocabulary;
  const bool split = options.tensor > 1;
  const double softmax = split ? 4 : 8;  // bytes a logit
  const double rounded = element_bytes == 4 ? 4 : 4 + element_bytes;
  const double beside = split ? 2 * element_bytes * rows * hidden : 0;
  const double peak = rows * vocabulary * std::max(softmax, rounded) + beside;
  if (element_bytes == 4 || gpu || rows == 0) return peak;
  return std::max(peak, vocabulary * (rounded * rows + element_bytes * hidden));
}

}  // namespace

Recompute CostModel::DoneOf(Recompute asked, const LayerSpec& work) {
  if (work.gradient_with_loss) return Recompute::kNone;
  if (work.has_halves) return asked;
  return asked == Recompute::kFull || asked == Recompute::kFullOffload ? Recompute::kFull
                                                                       : Recompute::kNone;
}

double CostModel::KeptElements(const HalfCost& half, bool trainable, const LayerLoad& load,
                               int row_shares, bool elementwise) const {
  const RunStyle& style = options_.style;
  const double input = half.input.At(load);
  double whole = trainable ? half.saved_whole.At(load) : 0;
  double own = half.saved.At(load) + (trainable ? half.saved_weights.At(load) - whole : 0);
  if (trainable && elementwise) {
    whole -= half.norms.At(load);
    own -= half.activations.At(load);
  }
  if (style.selective == Selective::kOperators) {  // every second product's result
    own = 0;
    for (const Product& product : half.products) {
      own += product.rows.At(load) * static_cast<double>(product.n) / 2;
    }
    return input + own;
  }
  return own + CopiedKeysValues(half, load, style) + (input + whole) / row_shares;
}

double CostModel::AnalyticKeptBytes(const LayerSpec& work, bool trainable, const LayerLoad& load,
                                    Recompute recompute, int row_shares) const {
  const auto element = static_cast<double>(options_.element_bytes);
  if (recompute == Recompute::kFull) {
    return element * (work.has_halves ? work.attention : work.mlp).input.At(load) / row_shares;
  }
  const auto bytes = [&](const HalfCost& half, bool again) {
    if (again) return element * half.input.At(load) / row_shares;
    return element * KeptElements(half, trainable, load, row_shares,
                                  recompute == Recompute::kElementwise) +
           4 * half.saved_fp32.At(load) + KeptScoreBytes(half, load, options_.style);
  };
  return bytes(work.attention, recompute == Recompute::kAttention) +
         bytes(work.mlp, recompute == Recompute::kMlp);
}

int64_t CostModel::KeptBytes(int layer, const LayerLoad& whole_load, Recompute recompute) const {
  const Group& group = At(layer);
  const LayerLoad load = Shared(whole_load);
  if (!group.has_backward) return 0;
  Recompute kind = DoneOf(recompute, group.work);
  if (kind != KeptAs(kind)) {
    if (cluster_.multiprocessors > 0) return 0;
    kind = KeptAs(kind);  // a CPU's memory is the host's
  }
  double bytes =
      AnalyticKeptBytes(group.work, group.trainable, load, kind, RowShares(group.work.input));
  const Recompute measured = kind == Recompute::kElementwise ? Recompute::kNone : kind;
  const LoadFit& fit = group.fit.kept_bytes[static_cast<size_t>(measured)];
  if (bytes > 0 && fit.At(load) > 0) {
    bytes *= fit.At(load) / AnalyticKeptBytes(group.measured, /*trainable=*/true, load, measured,
                                              /*row_shares=*/1);
  }
  return std::llround(bytes);
}

int64_t CostModel::HostBytes(int layer, const LayerLoad& load, Recompute recompute) const {
  const Recompute kind = DoneOf(recompute, At(layer).work);
  const bool offloads = kind != KeptAs(kind) && cluster_.multiprocessors > 0;
  return offloads ? KeptBytes(layer, load, KeptAs(kind)) : 0;
}

double CostModel::AnalyticWorkBytes(const Group& group, const LayerSpec& work, bool trainable,
                                    const LayerLoad& load, double gathered) const {
  const auto element = static_cast<double>(options_.element_bytes);
  const bool gpu = cluster_.multiprocessors > 0;
  if (work.gradient_with_loss) {
    // Of rows that are shared out, the gradient of all of them takes the place of what is gathered.
    return std::max(LogitsBytes(work, load, options_, gpu), element * work.mlp.workspace.At(load));
  }
  double unpacked = 0;  // the largest packed weight, as it is computed with
  for (const TensorSpec& tensor : work.parameters) {
    if (tensor.packing == Packing::kNone) continue;
    unpacked = std::max(unpacked, element * static_cast<double>(tensor.LargestPart(group.tensor)));
  }
  double most = 0;
  for (const HalfCost* half : {&work.attention, &work.mlp}) {
    const double elements = half->workspace.At(load) + (half == &work.mlp ? gathered : 0);
    // Their gradients are summed in fp32.
    const double copied = (element + 4) * CopiedKeysValues(*half, load, options_.style);
    const double rows = unpacked + elements * element + 4 * half->workspace_fp32.At(load) + copied;
    most = std::max(most, rows);
    if (rows == 0 || !trainable || gpu || options_.element_bytes == 4) continue;
    // A CPU computes a weight gradient in 16 bits before it is added; half of `rows` is freed by
    // then.
    for (const Product& product : half->products) {
      if (product.frozen) continue;
      most = std::max(most, rows / 2 + element * static_cast<double>(product.n * product.k));
    }
  }
  return most;
}

// Where ranks begin to share out rows, and where they end: a block's rows are gathered and dropped
// in the place of others that it has whole without.
double CostModel::GatheredElements(const LayerSpec& work, const LayerLoad& load) const {
  const int in = RowShares(work.input), out = RowShares(work.output);
  if (in == out) return 0;
  const int64_t elements = out > 1 ? work.output.Elements(load) : work.input.Elements(load) / in;
  return static_cast<double>(elements);
}

int64_t CostModel::WorkBytes(int layer, const LayerLoad& whole_load) const {
  const Group& group = At(layer);
  const LayerLoad load = Shared(whole_load);
  double bytes = AnalyticWorkBytes(group, group.work, group.trainable, load,
                                   GatheredElements(group.work, load));
  const double fitted = group.fit.work_bytes.At(load);
  if (bytes > 0 && fitted > 0)
    bytes *=
        fitted / AnalyticWorkBytes(group, group.measured, /*trainable=*/true, load, /*gathered=*/0);
  return std::llround(bytes);
}

int64_t CostModel::BoundaryBytes(int layer, const LayerLoad& load) const {
  const ActivationSpec& output = specs_[static_cast<size_t>(layer)].output;
  const LayerLoad own = Shared(load);
  const int shares = RowShares(output);
  // A program that shares out all rows does so where the layer itself would not.
  const int64_t rows =
      output.shared ? output.Rows(own, shares) : RowShare(output.Rows(own), shares);
  return options_.element_bytes * output.width * rows;
}

}  // namespace equipoise
