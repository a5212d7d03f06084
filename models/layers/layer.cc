#include "models/layers/layer.h"

#include <algorithm>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {

bool Layer::trainable() const {
  const auto trained = [](const Parameter* parameter) { return parameter->trainable; };
  return std::any_of(parameter_list_.begin(), parameter_list_.end(), trained) ||
         std::any_of(borrowed_.begin(), borrowed_.end(), trained);
}

at::Tensor Layer::ForwardHalf(Half /*half*/, const MicroBatch& /*batch*/,
                              const at::Tensor& /*input*/) {
  EQUIPOISE_CHECK(false, name(), " has no halves");
  return {};
}

Layer::Layer(LayerSpec spec, const TensorParallel& tensor)
    : spec_(std::move(spec)), tensor_(tensor) {
  for (const TensorSpec& each : spec_.parameters) Add(each);
}

Parameter& Layer::Add(const TensorSpec& spec) {
  auto parameter = std::make_unique<Parameter>();
  parameter->name = spec.name;
  parameter->component = ComponentName(spec_.component);
  parameter->shape = spec.shape;
  parameter->role = spec.role;
  parameter->trainable = MayTrain(spec.role);
  parameter->packs = spec.packing != Packing::kNone;
  parameter->part.owner = tensor_.rank == 0;
  if (spec.split.by != Split::By::kNothing) {
    const Share share = spec.split.On(tensor_);
    int64_t& size = parameter->shape[static_cast<size_t>(spec.dim)];
    EQUIPOISE_CHECK(size == share.whole, spec.name, ": ", share.whole);
    if (share.split()) {
      size = share.size;
      parameter->part = {spec.dim, share.begin, share.whole, share.owner};
    }
  }
  parameters_.push_back(std::move(parameter));
  parameter_list_.push_back(parameters_.back().get());
  return *parameters_.back();
}

Parameter* Layer::Find(const std::string& suffix) const {
  Parameter* found = nullptr;
  for (Parameter* parameter : parameter_list_) {
    if (parameter->name != suffix && !parameter->name.ends_with("." + suffix)) continue;
    EQUIPOISE_CHECK(found == nullptr, name(), " has several ", suffix);
    found = parameter;
  }
  return found;
}

Parameter& Layer::Get(const std::string& suffix) const {
  Parameter* found = Find(suffix);
  EQUIPOISE_CHECK(found != nullptr, name(), " has no ", suffix);
  return *found;
}

Parameter& Layer::GetOfRows(const std::string& suffix) {
  Parameter& found = Get(suffix);
  AddPartial(&found);
  return found;
}

void Layer::AddPartial(Parameter* parameter) {
  if (tensor_.sequence && parameter != nullptr) partial_.push_back(parameter);
}

Share Layer::ShareOf(const std::string& suffix) const {
  for (const TensorSpec& each : spec_.parameters) {
    if (each.name == spec_.name + "." + suffix) return each.split.On(tensor_);
  }
  EQUIPOISE_CHECK(false, name(), " has no ", suffix);
  return {};
}

ColumnLinears Layer::GetColumnLinears(const std::vector<std::string>& names) {
  ColumnLinears result;
  result.group_ = tensor_.group;
  result.shares_rows_ = tensor_.sequence;
  std::vector<int64_t> begins;
  int64_t own = 0, shared_width = 0;
  for (const std::string& each : names) {
    const Share out = ShareOf(each + ".weight");
    const bool shared = out.parts < tensor_.size;
    EQUIPOISE_CHECK(shared || result.shared_.empty(), each);
    (shared ? result.shared_ : result.own_)
        .push_back({&Get(each + ".weight"), Find(each + ".bias")});
    if (shared) result.share_ = out;
    result.widths_.push_back(out.size);
    int64_t& width = shared ? shared_width : own;
    begins.push_back(width);
    width += out.size;
  }
  result.adapters_ = GetAdapters(names, begins, result.own_.size());
  for (const ops::LinearWeights& a : result.adapters_.down) AddPartial(a.weight);
  return result;
}

RowLinear Layer::GetRowLinear(const std::string& name) {
  RowLinear result;
  result.group_ = tensor_.group;
  result.weights_ = {&Get(name + ".weight"), Find(name + ".bias")};
  result.adapters_ = GetAdapters({name}, {0}, /*first_shared=*/1);
  result.adapters_.scatters = tensor_.sequence;
  AddPartial(result.weights_.bias);
  for (const ops::LowRankPart& part : result.adapters_.own.parts) AddPartial(part.b);
  for (const ops::MagnitudePart& part : result.adapters_.own.magnitudes) AddPartial(part.magnitude);
  return result;
}

Adapters Layer::GetAdapters(const std::vector<std::string>& names,
                            const std::vector<int64_t>& begins, size_t first_shared) const {
  Adapters result;
  result.scale = spec_.adapter_scale;
  result.dropout = spec_.adapter_dropout;
  result.noise = &noise;
  result.context_rank = tensor_.context.rank;
  for (size_t i = 0; i < names.size(); ++i) {
    Parameter* a = Find(names[i] + ".lora_A.weight");
    if (a == nullptr) continue;
    Parameter* b = &Get(names[i] + ".lora_B.weight");
    result.down.push_back({a, nullptr});
    Adapters::Group& group = i < first_shared ? result.own : result.shared;
    group.parts.push_back({b, begins[i]});
    group.rank += a->shape[0];
    Parameter* magnitude = Find(names[i] + ".lora_magnitude_vector.weight");
    if (magnitude == nullptr) continue;
    group.magnitudes.push_back({magnitude, {&Get(names[i] + ".weight"), nullptr}, a, b, begins[i]});
  }
  return result;
}

}  // namespace equipoise
