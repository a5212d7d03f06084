#include "balance/cost_model.h"

#include <algorithm>

#include "balance/collective_time.h"
#include "balance/gemm_time.h"
#include "configs/error.h"
#include "models/stage_plan.h"

namespace equipoise {
namespace {

// Flash attention's backward makes the scores again: five products for two.
constexpr double kAttentionBackward = 2.5;
// Element-wise passes of backward beside those of forward: they read the gradient too.
constexpr double kPassesBackward = 1.5;
// What an analytic prediction is off by; docs/cost_model.md.
constexpr double kAnalyticErrorBand = 0.15;
// Rows of logits that exist at a time.
constexpr double kChunkLogits = 1 << 24, kMinChunkRows = 128;

}  // namespace

CostModel::CostModel(const ModelConfig& config, const Cluster& cluster, const Options& options,
                     const Profile* measured)
    : cluster_(cluster),
      options_(options),
      specs_(LayerSpecs(config)),
      error_band_(kAnalyticErrorBand) {
  EQUIPOISE_CHECK(measured == nullptr, "not yet");
  Plan tensor;
  tensor.tensor = options.tensor;
  tensor_link_ = TensorLink(cluster, tensor);
  bool before = false;
  for (size_t i = 0; i < specs_.size(); ++i) {
    const std::string module = ModuleOf(specs_[i].kind);
    const bool trainable =
        std::find(options.frozen.begin(), options.frozen.end(), module) == options.frozen.end();
    const bool same = i > 0 && specs_[i].kind == specs_[i - 1].kind &&
                      groups_.back().has_backward == (before || trainable);
    if (!same) {
      groups_.push_back(
          {WorkOfLayer(config, specs_[i].kind, options.tensor), trainable, before || trainable});
    }
    group_of_.push_back(num_groups() - 1);
    before = before || trainable;
  }
}

// Logits exist in chunks of rows (models/ops/cross_entropy.cc), twice in fp32 while their softmax
// is made; then as a gradient, which is rounded and multiplied.
double CostModel::LogitsBytes(const LayerWork& work, const LayerLoad& load) const {
  const auto vocabulary = static_cast<double>(work.mlp.products[0].n);
  const auto hidden = static_cast<double>(work.mlp.products[0].k);
  const double rows = std::min(static_cast<double>(load.tokens),
                               std::max(kMinChunkRows, kChunkLogits / vocabulary));
  if (options_.element_bytes == 4) return 8 * rows * vocabulary;
  const auto element = static_cast<double>(options_.element_bytes);
  return rows > 0 ? vocabulary * std::max(8 * rows, (4 + element) * rows + element * hidden) : 0;
}

double CostModel::ReduceSeconds(const HalfWork& half, const LayerLoad& load) const {
  const double bytes = half.reduced.At(load) * static_cast<double>(options_.element_bytes);
  return bytes > 0 ? AllReduceSeconds(bytes, options_.tensor, tensor_link_) : 0;
}

LayerTimes CostModel::HalfTimes(const HalfWork& half, const LayerLoad& load) const {
  const int64_t bytes = options_.element_bytes;
  LayerTimes times;
  for (const Product& product : half.products) {
    const double rows = product.rows.At(load);
    const auto n = static_cast<double>(product.n), k = static_cast<double>(product.k);
    times.forward_s += GemmSeconds({rows, n, k}, cluster_, bytes);
    times.input_gradient_s += GemmSeconds({rows, k, n}, cluster_, bytes);
    times.weight_gradient_s += rows > 0 ? GemmSeconds({n, k, rows}, cluster_, bytes) : 0;
  }
  const double attention = (half.attention_flops_per_tile * static_cast<double>(load.tiles) +
                            half.attention_flops_per_pair * load.token_pairs) /
                           (cluster_.peak_flops * cluster_.attention_efficiency);
  const double moved = half.passed.At(load) * static_cast<double>(bytes);
  if (moved <= 0) return times;
  const double passes = moved / (cluster_.memory_bytes_per_s * cluster_.memory_efficiency);
  const double launches = half.kernels * cluster_.launch_s;
  const double reduce = ReduceSeconds(half, load);
  times.forward_s += attention + passes + launches + reduce;
  times.input_gradient_s +=
      kAttentionBackward * attention + kPassesBackward * passes + launches + reduce;
  return times;
}

LayerTimes CostModel::Times(int layer, const LayerLoad& load) const {
  const Group& group = At(layer);
  const LayerTimes a = HalfTimes(group.work.attention, load), b = HalfTimes(group.work.mlp, load);
  LayerTimes times;
  times.forward_s = a.forward_s + b.forward_s;
  if (!group.has_backward) return times;
  if (group.work.has_input) times.input_gradient_s = a.input_gradient_s + b.input_gradient_s;
  if (group.trainable) times.weight_gradient_s = a.weight_gradient_s + b.weight_gradient_s;
  if (group.work.gradient_with_loss) {
    times.forward_s += times.backward_s();
    times.input_gradient_s = times.weight_gradient_s = 0;
  }
  return times;
}

double CostModel::RecomputeSeconds(int layer, const LayerLoad& load, Recompute recompute) const {
  const Group& group = At(layer);
  if (!group.has_backward || group.work.gradient_with_loss) return 0;
  const bool full = recompute == Recompute::kFull;
  if (!full && !group.work.has_halves) return 0;
  double seconds = 0;
  if (full || recompute == Recompute::kAttention) {
    seconds += HalfTimes(group.work.attention, load).forward_s;
  }
  if (full || recompute == Recompute::kMlp) seconds += HalfTimes(group.work.mlp, load).forward_s;
  return seconds;
}

int64_t CostModel::KeptBytes(int layer, const LayerLoad& load, Recompute recompute) const {
  const Group& group = At(layer);
  if (!group.has_backward) return 0;
  const LayerWork& work = group.work;
  if (work.gradient_with_loss) recompute = Recompute::kNone;
  if (recompute != Recompute::kFull && !work.has_halves) recompute = Recompute::kNone;
  const auto bytes = static_cast<double>(options_.element_bytes);
  const auto half_bytes = [&](const HalfWork& half, bool keeps) {
    double kept = bytes * half.input.At(load);
    if (!keeps) return kept;
    kept += bytes * half.kept.At(load) + 4 * half.kept_fp32.At(load);
    return kept + (group.trainable ? bytes * half.kept_weights.At(load) : 0);
  };
  if (recompute == Recompute::kFull) {
    const HalfWork& first = work.has_halves ? work.attention : work.mlp;
    return static_cast<int64_t>(bytes * first.input.At(load));
  }
  double kept = half_bytes(work.mlp, recompute != Recompute::kMlp);
  if (work.has_halves) kept += half_bytes(work.attention, recompute != Recompute::kAttention);
  return static_cast<int64_t>(kept);
}

int64_t CostModel::WorkBytes(int layer, const LayerLoad& load) const {
  const LayerWork& work = At(layer).work;
  double most = work.gradient_with_loss ? LogitsBytes(work, load) : 0;
  for (const HalfWork* half : {&work.attention, &work.mlp}) {
    most = std::max(most, half->work.At(load) * static_cast<double>(options_.element_bytes) +
                              4 * half->work_fp32.At(load));
  }
  return static_cast<int64_t>(most);
}

int64_t CostModel::Parameters(int layer) const { return At(layer).work.parameters; }

bool CostModel::Trainable(int layer) const { return At(layer).trainable; }

bool CostModel::HasBackward(int layer) const { return At(layer).has_backward; }

}  // namespace equipoise
