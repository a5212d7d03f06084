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
  EQUIPOISE_CHECK(false, name_, " has no halves");
  return {};
}

Parameter& Layer::AddParameter(const std::string& name, std::vector<int64_t> shape) {
  auto parameter = std::make_unique<Parameter>();
  parameter->name = name[0] == '/' ? name.substr(1) : name_ + "." + name;
  parameter->shape = std::move(shape);
  parameter->part.owner = tensor_.rank == 0;
  parameters_.push_back(std::move(parameter));
  parameter_list_.push_back(parameters_.back().get());
  return *parameters_.back();
}

Parameter& Layer::AddPart(const std::string& name, std::vector<int64_t> shape, int dim,
                          const Share& share) {
  EQUIPOISE_CHECK(shape[static_cast<size_t>(dim)] == share.whole, name, ": ", share.whole);
  Parameter& parameter = AddParameter(name, std::move(shape));
  if (!share.split()) return parameter;
  parameter.shape[static_cast<size_t>(dim)] = share.size;
  parameter.part.dim = dim;
  parameter.part.begin = share.begin;
  parameter.part.whole = share.whole;
  parameter.part.owner = share.owner;
  return parameter;
}

ColumnLinears Layer::AddColumnLinears(const std::vector<LinearShape>& linears, int64_t in,
                                      bool bias) {
  std::vector<ops::LinearWeights> weights;
  weights.reserve(linears.size());
  for (const auto& [name, out] : linears) {
    weights.push_back({&AddPart(name + ".weight", {out.whole, in}, 0, out), nullptr});
  }
  for (size_t i = 0; bias && i < linears.size(); ++i) {
    const Share& out = linears[i].out;
    weights[i].bias = &AddPart(linears[i].name + ".bias", {out.whole}, 0, out);
  }
  ColumnLinears result;
  result.group_ = tensor_.group;
  for (size_t i = 0; i < linears.size(); ++i) {
    const Share& out = linears[i].out;
    const bool shared = out.parts < tensor_.size;
    EQUIPOISE_CHECK(shared || result.shared_.empty(), linears[i].name);
    (shared ? result.shared_ : result.own_).push_back(weights[i]);
    if (shared) result.share_ = out;
    result.widths_.push_back(out.size);
  }
  return result;
}

RowLinear Layer::AddRowLinear(const std::string& name, const Share& in, int64_t out, bool bias) {
  RowLinear result;
  result.group_ = tensor_.group;
  result.weights_.weight = &AddPart(name + ".weight", {out, in.whole}, 1, in);
  if (bias) result.weights_.bias = &AddParameter(name + ".bias", {out});
  return result;
}

}  // namespace equipoise
