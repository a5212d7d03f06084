#include "balance/costs/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "balance/costs/collective_time.h"
#include "balance/costs/gemm_time.h"
#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/spec/logits_chunk.h"

// A layer's time is a sum over its halves: each GEMM by its shape (GemmSeconds()), attention by its
// FLOPs, element-wise work by its bytes, kernels by a launch each, all-reduces of tensor ranks by
// the link (docs/cost_model.md). With a profile the fitted seconds take their place; for another
// number of tensor ranks than was measured they are scaled by the ratio of the arithmetic. Nothing
// is learned from a run.

namespace equipoise {
namespace {

// Flash attention's backward recomputes the scores: five products instead of two.
constexpr double kAttentionBackward = 2.5;
// Element-wise work of backward relative to forward: it reads the gradient as well.
constexpr double kPassesBackward = 1.5;
// Error band of analytic predictions; docs/cost_model.md.
constexpr double kAnalyticErrorBand = 0.15;

// The recomputation that a layer does when `asked` is set for it.
Recompute Possible(const LayerSpec& work, Recompute asked) {
  if (work.gradient_with_loss) return Recompute::kNone;
  return asked == Recompute::kFull || work.has_halves ? asked : Recompute::kNone;
}

// Times of a layer from those of its halves.
LayerTimes Sum(const LayerSpec& work, const LayerTimes& attention, const LayerTimes& mlp) {
  LayerTimes times;
  times.forward_s = attention.forward_s + mlp.forward_s;
  if (work.needs_input_gradient)
    times.input_gradient_s = attention.input_gradient_s + mlp.input_gradient_s;
  times.weight_gradient_s = attention.weight_gradient_s + mlp.weight_gradient_s;
  return times;
}

// Peak bytes of a chunk of logits (models/ops/cross_entropy.cc): two fp32 copies during the
// softmax; then the fp32 gradient, its rounded copy and, on a CPU, the weight's gradient.
double LogitsBytes(const LayerSpec& work, const LayerLoad& load, double element_bytes, bool gpu) {
  const int64_t columns = work.mlp.products[0].n;
  const auto vocabulary = static_cast<double>(columns);
  const auto hidden = static_cast<double>(work.mlp.products[0].k);
  const auto rows = static_cast<double>(std::min(load.targets, LogitsChunkRows(columns, gpu)));
  if (element_bytes == 4 || gpu) return 8 * rows * vocabulary;
  if (rows == 0) return 0;
  return vocabulary * std::max(8 * rows, (4 + element_bytes) * rows + element_bytes * hidden);
}

}  // namespace

CostModel::CostModel(const ModelConfig& config, const Cluster& cluster, const Options& options,
                     const Profile* measured)
    : cluster_(measured == nullptr ? cluster : WithMeasuredLinks(cluster, *measured)),
      options_(options),
      specs_(LayerSpecs(config)),
      error_band_(kAnalyticErrorBand) {
  tensor_link_ = TensorLink(cluster_, InlinePlan({.tensor = options.tensor}));
  const std::vector<LayerSpec> shared = LayerSpecs(config, options.tensor);
  bool before = false;
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (i == 0 || specs_[i].kind != specs_[i - 1].kind) {
      Group group;
      group.work = shared[i];
      group.trainable = !IsAmong(specs_[i], options.frozen);
      group.has_backward = before || group.trainable;
      groups_.push_back(std::move(group));
    }
    group_of_.push_back(num_groups() - 1);
    before = groups_.back().has_backward;
  }
  if (!specs_.back().tied.name.empty()) {
    tied_parameters_ = specs_.back().tied.LargestPart(options.tensor);
  }
  if (measured != nullptr) Fit(*measured);
}

void CostModel::Fit(const Profile& measured) {
  double squares = 0;
  for (int layer = 0; layer < num_layers(); ++layer) {
    Group& group = groups_[static_cast<size_t>(GroupOf(layer))];
    if (group.fit.measurements > 0) continue;
    const LayerSpec& whole = specs_[static_cast<size_t>(layer)];
    const std::string &name = whole.kind, &shape = whole.shape;
    if (options_.tensor > 1 && FitsNode(cluster_, options_.tensor)) {
      group.fit = FitLayer(measured, name, shape, options_.tensor);
    }
    group.fit_has_sums = group.fit.measurements > 0;
    if (!group.fit_has_sums) group.fit = FitLayer(measured, name, shape);
    if (group.fit.measurements == 0) {
      throw ConfigError(
          fmt::format("profile: no measurement of {} ({}); run equipoise profile with this model",
                      name, shape));
    }
    group.measured = group.fit_has_sums ? group.work : whole;
    squares += group.fit.residual * group.fit.residual;
  }
  error_band_ = std::sqrt(squares / num_groups());
  optimizer_s_per_parameter_ = measured.optimizer_s_per_parameter;
}

double CostModel::SumSeconds(const std::vector<TensorAllReduce>& sums,
                             const LayerLoad& load) const {
  double seconds = 0;
  for (const TensorAllReduce& sum : sums) {
    const auto element = static_cast<double>(sum.fp32 ? 4 : options_.element_bytes);
    const double bytes = element * (sum.elements.At(load) + sum.fixed);
    if (bytes > 0) seconds += AllReduceSeconds(bytes, options_.tensor, tensor_link_);
  }
  return seconds;
}

LayerTimes CostModel::HalfTimes(const HalfCost& half, const LayerLoad& load) const {
  const int64_t bytes = options_.element_bytes;
  LayerTimes times;
  for (const Product& product : half.products) {
    const double rows = product.rows.At(load);
    if (rows <= 0) continue;
    const auto n = static_cast<double>(product.n), k = static_cast<double>(product.k);
    times.forward_s += GemmSeconds({rows, n, k}, cluster_, bytes);
    times.input_gradient_s += GemmSeconds({rows, k, n}, cluster_, bytes);
    times.weight_gradient_s += GemmSeconds({n, k, rows}, cluster_, bytes);
  }
  const double moved = half.elementwise.At(load) * static_cast<double>(bytes);
  if (moved <= 0) return times;
  const double attention =
      half.AttentionFlops(load) / (cluster_.peak_flops * cluster_.attention_efficiency);
  const double passes = moved / (cluster_.memory_bytes_per_s * cluster_.memory_efficiency);
  const double launches = half.kernels * cluster_.launch_s;
  times.forward_s += attention + passes + launches;
  times.input_gradient_s += kAttentionBackward * attention + kPassesBackward * passes + launches;
  return times;
}

CostModel::Halves CostModel::HalvesOf(const LayerSpec& work, const LayerLoad& load) const {
  return {HalfTimes(work.attention, load), HalfTimes(work.mlp, load)};
}

// Times of a layer whose weights are all trained.
LayerTimes CostModel::TrainedTimes(const Group& group, const Halves& halves,
                                   const LayerLoad& load) const {
  LayerTimes times = Sum(group.work, halves.attention, halves.mlp);
  if (group.fit.measurements > 0) {
    const double all = times.forward_s + times.backward_s();
    const Halves measured = HalvesOf(group.measured, load);
    const LayerTimes then = Sum(group.measured, measured.attention, measured.mlp);
    const double share = all > 0 ? all / (then.forward_s + then.backward_s()) : 0;
    times.forward_s = share * group.fit.forward_s.At(load);
    times.input_gradient_s = share * group.fit.input_gradient_s.At(load);
    times.weight_gradient_s = share * group.fit.weight_gradient_s.At(load);
  } else if (group.work.gradient_with_loss) {
    times = {times.forward_s + times.backward_s(), 0, 0};
  }
  if (group.fit_has_sums) return times;
  for (const HalfCost* half : {&group.work.attention, &group.work.mlp}) {
    times.forward_s += SumSeconds(half->all_reduces, load);
    times.input_gradient_s += SumSeconds(half->gradient_all_reduces, load);
  }
  return times;
}

LayerSeconds CostModel::Seconds(int layer, const LayerLoad& load) const {
  const Group& group = At(layer);
  const Halves halves = HalvesOf(group.work, load);
  LayerSeconds seconds;
  seconds.times = TrainedTimes(group, halves, load);
  const double forward_s = seconds.times.forward_s;
  if (!group.has_backward) seconds.times.input_gradient_s = 0;
  if (!group.trainable) seconds.times.weight_gradient_s = 0;
  if (!group.has_backward) return seconds;
  const double attention =
      halves.attention.forward_s + SumSeconds(group.work.attention.all_reduces, load);
  const double mlp = halves.mlp.forward_s + SumSeconds(group.work.mlp.all_reduces, load);
  for (size_t asked = 0; asked < seconds.recompute_s.size(); ++asked) {
    const Recompute kind = Possible(group.work, static_cast<Recompute>(asked));
    if (kind == Recompute::kNone) continue;
    const bool whole = kind == Recompute::kFull || forward_s <= 0;
    const double half = kind == Recompute::kMlp ? mlp : attention;
    seconds.recompute_s[asked] = whole ? forward_s : forward_s * half / (attention + mlp);
  }
  return seconds;
}

LayerTimes CostModel::Times(int layer, const LayerLoad& load) const {
  return Seconds(layer, load).times;
}

double CostModel::RecomputeSeconds(int layer, const LayerLoad& load, Recompute recompute) const {
  return Seconds(layer, load).recompute_s[static_cast<size_t>(recompute)];
}

double CostModel::AnalyticKeptBytes(const LayerSpec& work, bool trainable, const LayerLoad& load,
                                    Recompute recompute) const {
  const auto element = static_cast<double>(options_.element_bytes);
  if (recompute == Recompute::kFull) {
    return element * (work.has_halves ? work.attention : work.mlp).input.At(load);
  }
  const auto bytes = [&](const HalfCost& half, bool again) {
    const double input = element * half.input.At(load);
    if (again) return input;
    const double weights = trainable ? half.saved_weights.At(load) : 0;
    return input + element * (half.saved.At(load) + weights) + 4 * half.saved_fp32.At(load);
  };
  return bytes(work.attention, recompute == Recompute::kAttention) +
         bytes(work.mlp, recompute == Recompute::kMlp);
}

int64_t CostModel::KeptBytes(int layer, const LayerLoad& load, Recompute recompute) const {
  const Group& group = At(layer);
  if (!group.has_backward) return 0;
  const Recompute kind = Possible(group.work, recompute);
  double bytes = AnalyticKeptBytes(group.work, group.trainable, load, kind);
  const LoadFit& fit = group.fit.kept_bytes[static_cast<size_t>(kind)];
  if (bytes > 0 && fit.At(load) > 0) {
    bytes *= fit.At(load) / AnalyticKeptBytes(group.measured, /*trainable=*/true, load, kind);
  }
  return std::llround(bytes);
}

double CostModel::AnalyticWorkBytes(const LayerSpec& work, bool trainable,
                                    const LayerLoad& load) const {
  const auto element = static_cast<double>(options_.element_bytes);
  const bool gpu = cluster_.multiprocessors > 0;
  if (work.gradient_with_loss) {
    return std::max(LogitsBytes(work, load, element, gpu), element * work.mlp.workspace.At(load));
  }
  double most = 0;
  for (const HalfCost* half : {&work.attention, &work.mlp}) {
    const double rows = half->workspace.At(load) * element + 4 * half->workspace_fp32.At(load);
    most = std::max(most, rows);
    if (rows == 0 || !trainable || gpu || options_.element_bytes == 4) continue;
    // A CPU computes a weight gradient in 16 bits before it is added; half of `rows` is freed by
    // then.
    for (const Product& product : half->products) {
      most = std::max(most, rows / 2 + element * static_cast<double>(product.n * product.k));
    }
  }
  return most;
}

int64_t CostModel::WorkBytes(int layer, const LayerLoad& load) const {
  const Group& group = At(layer);
  double bytes = AnalyticWorkBytes(group.work, group.trainable, load);
  const double fitted = group.fit.work_bytes.At(load);
  if (bytes > 0 && fitted > 0)
    bytes *= fitted / AnalyticWorkBytes(group.measured, /*trainable=*/true, load);
  return std::llround(bytes);
}

int64_t CostModel::Parameters(int layer) const {
  return At(layer).work.LargestPart(options_.tensor);
}

bool CostModel::Trainable(int layer) const { return At(layer).trainable; }

bool CostModel::HasBackward(int layer) const { return At(layer).has_backward; }

}  // namespace equipoise
