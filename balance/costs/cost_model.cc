#include "balance/costs/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "balance/costs/collective_time.h"
#include "balance/costs/half_time.h"
#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/spec/tensor_parallel.h"

// A layer's time is a sum over its halves: each GEMM by its shape (GemmSeconds()), attention by its
// FLOPs, element-wise work by its bytes, kernels by a launch each, all-reduces of tensor ranks by
// the link (docs/cost_model.md). With a profile the fitted seconds take their place; for another
// number of tensor ranks than was measured they are scaled by the ratio of the arithmetic. Nothing
// is learned from a run.

namespace equipoise {
namespace {

// Error band of analytic predictions; docs/cost_model.md.
constexpr double kAnalyticErrorBand = 0.06;

// Times of a layer from those of its halves.
LayerTimes Sum(const LayerSpec& work, const LayerTimes& attention, const LayerTimes& mlp) {
  LayerTimes times;
  times.forward_s = attention.forward_s + mlp.forward_s;
  if (work.needs_input_gradient)
    times.input_gradient_s = attention.input_gradient_s + mlp.input_gradient_s;
  times.weight_gradient_s = attention.weight_gradient_s + mlp.weight_gradient_s;
  return times;
}

// The layers on one tensor-parallel rank.
std::vector<LayerSpec> SharedLayers(ModelConfig config, const CostModel::Options& options) {
  if (options.encoder_layers == 0) return LayerSpecs(config, options.tensor);
  std::vector<LayerSpec> encoder = LayerSpecs(config, options.encoder_tensor);
  // More ranks than the encoder has heads may share the other layers, which have none of these.
  config.vision.num_attention_heads =
      std::max<int64_t>(config.vision.num_attention_heads, options.tensor);
  std::vector<LayerSpec> shared = LayerSpecs(config, options.tensor);
  std::move(encoder.begin(), encoder.begin() + options.encoder_layers, shared.begin());
  return shared;
}

double UnpackedBytes(Packing packing, const Program& program) {
  switch (packing) {
    case Packing::kNone:
      return 0;
    case Packing::kInt8:
      return program.int8_bytes;
    case Packing::kNf4:
      return program.nf4_bytes;
    case Packing::kGptq:
      return program.gptq_bytes;
  }
  return 0;
}

double UnpackingSeconds(const LayerSpec& work, const CostModel::Options& options, int tensor,
                        const Cluster& cluster) {
  if (cluster.multiprocessors == 0) return 0;
  double bytes = 0;
  for (const TensorSpec& parameter : work.parameters) {
    bytes += UnpackedBytes(parameter.packing, *options.style.program) *
             static_cast<double>(parameter.LargestPart(tensor));
  }
  return bytes / (cluster.memory_bytes_per_s * cluster.memory_efficiency);
}

double WeightsOf(const HalfCost& half) {
  double weights = 0;
  for (const Product& product : half.products)
    weights += static_cast<double>(product.n) * static_cast<double>(product.k);
  return weights;
}

}  // namespace

CostModel::Options CostModel::OptionsOf(const Plan& plan, Options options) {
  options.tensor = plan.tensor();
  options.encoder_layers = plan.encoder_lanes() > 1 ? plan.components.back().first_layer : 0;
  options.encoder_tensor = plan.encoder_lanes() > 1 ? plan.encoder_tensor() : 1;
  return options;
}

bool CostModel::Fits(const Plan& plan) const {
  const Options wanted = OptionsOf(plan, options_);
  return options_.tensor == wanted.tensor && options_.encoder_layers == wanted.encoder_layers &&
         options_.encoder_tensor == wanted.encoder_tensor;
}

CostModel::CostModel(const ModelConfig& config, const Cluster& cluster, const Options& options,
                     const Profile* measured)
    : cluster_(measured == nullptr ? cluster : WithMeasuredLinks(cluster, *measured)),
      options_(options),
      specs_(LayerSpecs(config)),
      error_band_(kAnalyticErrorBand) {
  tensor_link_ = TensorLink(cluster_, InlinePlan({.tensor = options.tensor}));
  encoder_link_ = TensorLink(cluster_, InlinePlan({.tensor = options.encoder_tensor}));
  context_link_ =
      FitsNode(cluster_, options.tensor * options.style.context) ? cluster_.intra : cluster_.inter;
  const std::vector<LayerSpec> shared = SharedLayers(config, options);
  bool before = false;
  for (size_t i = 0; i < specs_.size(); ++i) {
    const int64_t trained = IsTrained(specs_[i], options.frozen) ? specs_[i].trained_count() : 0;
    if (i == 0 || specs_[i].kind != specs_[i - 1].kind || specs_[i].shape != specs_[i - 1].shape ||
        trained != groups_.back().trained_whole) {
      Group group;
      group.work = shared[i], group.trained_whole = trained;
      group.tensor = TensorOf(static_cast<int>(i));
      group.trainable = IsTrained(specs_[i], options.frozen);
      group.has_backward = before || group.trainable;
      group.parameters = shared[i].LargestPart(group.tensor);
      if (group.trainable) group.trained_parameters = shared[i].LargestTrained(group.tensor);
      group.parameter_bytes = shared[i].LargestBytes(group.tensor, options.element_bytes);
      for (const TensorSpec& tensor : shared[i].parameters) {
        if (tensor.packing == Packing::kNone)
          group.shared_bytes += tensor.LargestBytes(group.tensor, options.element_bytes);
      }
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
    if (group.tensor > 1 && FitsNode(cluster_, group.tensor)) {
      group.fit = FitLayer(measured, name, shape, group.tensor);
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

int CostModel::RowShares(const ActivationSpec& rows) const {
  const RunStyle& style = options_.style;
  const bool shared = rows.shared || style.program->shares_all_rows;
  return style.sequence_parallel && shared ? options_.tensor : 1;
}

// A program that shares out all rows is priced by its sums, of as many bytes.
bool CostModel::ExchangesRows() const {
  return options_.style.sequence_parallel && !options_.style.program->shares_all_rows;
}

double CostModel::SumSeconds(const std::vector<TensorAllReduce>& sums,
                             const std::vector<PerRow>& exchanges, const LayerLoad& load,
                             int tensor, double products_s) const {
  const LinkModel& link = tensor == options_.tensor ? tensor_link_ : encoder_link_;
  CollectiveLoad all;
  if (ExchangesRows()) {
    for (const PerRow& elements : exchanges) {
      const double bytes = static_cast<double>(options_.element_bytes) * elements.At(load);
      all.seconds += AllGatherSeconds(bytes, tensor, link);
      all.bytes += bytes;
    }
  }
  for (const TensorAllReduce& sum : sums) {
    if (ExchangesRows() ? sum.of_rows : sum.of_shares) continue;
    const auto element = static_cast<double>(sum.fp32 ? 4 : options_.element_bytes);
    const double bytes = element * (sum.elements.At(load) + sum.fixed);
    if (bytes <= 0) continue;
    all.seconds += AllReduceSeconds(bytes, tensor, link);
    all.bytes += 2 * bytes;
  }
  if (!options_.style.overlaps_sums) return all.seconds;
  // In as many parts as there are ranks; the first part has nothing to run beside.
  const double longer = BesideSeconds(products_s, all, cluster_) - products_s;
  return std::max(all.seconds / tensor, longer);
}

LayerLoad CostModel::Shared(LayerLoad load) const {
  const int ranks = options_.style.context;
  if (ranks == 1) return load;
  load.patches = RowShare(load.patches, ranks);
  load.patch_pairs /= ranks;
  load.window_pairs /= ranks;
  load.image_tokens = RowShare(load.image_tokens, ranks);
  load.tokens = RowShare(load.tokens, ranks);
  load.token_pairs /= ranks;
  load.targets = RowShare(load.targets, ranks);
  return load;
}

CostModel::Halves CostModel::HalvesOf(const LayerSpec& work, const LayerLoad& load, int row_shares,
                                      int tensor) const {
  const bool fp8 = options_.style.fp8 && work.has_halves && cluster_.fp8_speedup > 0;
  const HalfSetting setting = {cluster_,   options_.style, options_.element_bytes,
                               row_shares, context_link_,  fp8};
  Halves halves = {HalfSeconds(work.attention, load, setting),
                   HalfSeconds(work.mlp, load, setting)};
  const double unpacking = UnpackingSeconds(work, options_, tensor, cluster_);
  if (unpacking == 0) return halves;
  const double of_attention = WeightsOf(work.attention), of_mlp = WeightsOf(work.mlp);
  const auto add = [&](HalfTimes& half, double weights) {
    const double seconds = unpacking * weights / (of_attention + of_mlp);
    half.products_s += seconds;
    half.forward_s += seconds;
    half.input_gradient_s += seconds;
  };
  add(halves.attention, of_attention);
  add(halves.mlp, of_mlp);
  return halves;
}

// Times of a layer whose weights are all trained; but of gradients with the loss, which are in
// forward, those that the layer computes.
LayerTimes CostModel::TrainedTimes(const Group& group, const Halves& halves,
                                   const LayerLoad& load) const {
  LayerTimes times = Sum(group.work, halves.attention, halves.mlp);
  const double all = times.forward_s + times.backward_s();
  double with_loss_s = times.forward_s;
  if (group.has_backward) with_loss_s += times.input_gradient_s;
  if (group.trainable) with_loss_s += times.weight_gradient_s;
  if (group.fit.measurements > 0) {
    const int of_ranks = group.fit_has_sums ? group.tensor : 1;
    const Halves measured = HalvesOf(group.measured, load, /*row_shares=*/1, of_ranks);
    const LayerTimes then = Sum(group.measured, measured.attention, measured.mlp);
    const double share = all > 0 ? all / (then.forward_s + then.backward_s()) : 0;
    times.forward_s = share * group.fit.forward_s.At(load);
    times.input_gradient_s = share * group.fit.input_gradient_s.At(load);
    times.weight_gradient_s = share * group.fit.weight_gradient_s.At(load);
    // Measured with all gradients.
    if (group.work.gradient_with_loss && all > 0) times.forward_s *= with_loss_s / all;
  } else if (group.work.gradient_with_loss) {
    times = {with_loss_s, 0, 0};
  }
  AddSums(group, group.work.attention, halves.attention, load, &times);
  AddSums(group, group.work.mlp, halves.mlp, load, &times);
  return times;
}

// Where sums were measured with the layer, what is gathered once more for the weights' gradients is
// all that sequence parallelism adds: a sum is a scatter and a gather.
void CostModel::AddSums(const Group& group, const HalfCost& half, const HalfTimes& alone,
                        const LayerLoad& load, LayerTimes* times) const {
  const auto seconds = [&](const std::vector<TensorAllReduce>& sums,
                           const std::vector<PerRow>& exchanges) {
    return SumSeconds(sums, exchanges, load, group.tensor, alone.products_s);
  };
  times->weight_gradient_s += seconds({}, half.weight_row_exchanges);
  if (group.fit_has_sums) return;
  times->forward_s += seconds(half.all_reduces, half.row_exchanges);
  times->input_gradient_s += seconds(half.gradient_all_reduces, half.gradient_row_exchanges);
}

// The copies to the host run beside the next layer's forward, those back beside the backward of the
// layer behind: of a stack of equal layers, beside the passes of one.
double CostModel::CopiesBeyond(const LayerTimes& times, int64_t bytes) const {
  const double rate = cluster_.host.link_bytes_per_s;
  const double copy_s = rate > 0 ? static_cast<double>(bytes) / rate : 0;
  return std::max(0.0, copy_s - times.forward_s) + std::max(0.0, copy_s - times.backward_s());
}

LayerSeconds CostModel::Seconds(int layer, const LayerLoad& whole_load) const {
  const Group& group = At(layer);
  const LayerLoad load = Shared(whole_load);
  const Halves halves = HalvesOf(group.work, load, RowShares(group.work), group.tensor);
  LayerSeconds seconds;
  seconds.times = TrainedTimes(group, halves, load);
  const double forward_s = seconds.times.forward_s;
  if (!group.has_backward) seconds.times.input_gradient_s = 0;
  if (!group.trainable) seconds.times.weight_gradient_s = 0;
  if (!group.has_backward) return seconds;
  const auto forward = [&](const HalfCost& half, const HalfTimes& alone) {
    return alone.forward_s +
           SumSeconds(half.all_reduces, half.row_exchanges, load, group.tensor, alone.products_s);
  };
  const double attention = forward(group.work.attention, halves.attention);
  const double mlp = forward(group.work.mlp, halves.mlp);
  const double elementwise = group.trainable ? ElementwiseSeconds(group.work, load) : 0;
  for (size_t asked = 0; asked < seconds.recompute_s.size(); ++asked) {
    const Recompute kind = DoneOf(static_cast<Recompute>(asked), group.work);
    if (kind == Recompute::kNone) continue;
    const bool whole =
        kind == Recompute::kFull || kind == Recompute::kFullOffload || forward_s <= 0;
    const double half = kind == Recompute::kElementwise ? elementwise
                        : kind == Recompute::kMlp       ? mlp
                                                        : attention;
    double& more_s = seconds.recompute_s[asked];
    if (kind != Recompute::kOffload)
      more_s = whole ? forward_s : forward_s * half / (attention + mlp);
    more_s += CopiesBeyond(seconds.times, HostBytes(layer, whole_load, kind));
  }
  return seconds;
}

LayerTimes CostModel::Times(int layer, const LayerLoad& load) const {
  return Seconds(layer, load).times;
}

// Of the passes whose results are not kept.
double CostModel::ElementwiseSeconds(const LayerSpec& work, const LayerLoad& load) const {
  LayerSpec alone;
  const auto passes = [&](const HalfCost& half, HalfCost& of) {
    for (const Pass& pass : half.passes) {
      const bool norm = pass.kind == PassKind::kNorm || pass.kind == PassKind::kLayerNorm;
      const bool activation = pass.kind == PassKind::kGatedUnit || pass.kind == PassKind::kGelu;
      const bool again = norm ? pass.whole && half.norms.At(load) > 0
                              : activation && half.activations.At(load) > 0;
      if (again) of.passes.push_back(pass);
    }
  };
  passes(work.attention, alone.attention);
  passes(work.mlp, alone.mlp);
  const Halves halves = HalvesOf(alone, load, RowShares(work), /*tensor=*/1);
  return halves.attention.forward_s + halves.mlp.forward_s;
}

double CostModel::RecomputeSeconds(int layer, const LayerLoad& load, Recompute recompute) const {
  return Seconds(layer, load).recompute_s[static_cast<size_t>(recompute)];
}

bool CostModel::Trainable(int layer) const { return At(layer).trainable; }

bool CostModel::HasBackward(int layer) const { return At(layer).has_backward; }

}  // namespace equipoise
