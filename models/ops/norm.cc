#include "models/ops/norm.h"

#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_fused_rms_norm_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include "models/ops/gradient_sums.h"
#include "models/ops/record.h"
#include "models/ops/row_dispatch.h"
#include "parallel/intra_op.h"

namespace equipoise::ops {
namespace {

// Result, mean and rstd of each row, as at::native_layer_norm().
std::tuple<at::Tensor, at::Tensor, at::Tensor> Normalised(const at::Tensor& x,
                                                          const at::Tensor& weight,
                                                          const at::Tensor& bias, double eps) {
  const int64_t size = x.size(-1);
  if (!Has16Bits(x)) return at::native_layer_norm(x, {size}, weight, bias, eps);
  const int64_t num_rows = x.numel() / size;
  at::Tensor y = at::empty(x.sizes(), x.options());
  const at::Tensor mean = at::empty({num_rows}, at::kFloat), rstd = at::empty_like(mean);
  const LayerNormStatistics statistics = {mean.mutable_data_ptr<float>(),
                                          rstd.mutable_data_ptr<float>()};
  ForRows(num_rows, size, [&](int64_t begin, int64_t end) {
    On16Bits(x, [&](auto type) {
      using T = decltype(type);
      LayerNormRows({begin, end, size, size}, Data<T>(x), Data<T>(weight), Data<T>(bias),
                    static_cast<float>(eps), MutableData<T>(y), statistics);
    });
  });
  return {y, mean, rstd};
}

struct LayerNormNode : ElementwiseNode {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;
  at::Tensor x, mean, rstd;
  double eps = 0;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor g = gradients[0].contiguous();
    const bool own = weight->trainable && bias->trainable && AddByOwnKernel(g);
    const std::array<bool, 3> wanted = {task_should_compute_output(0), weight->trainable && !own,
                                        bias->trainable && !own};
    if (std::ranges::none_of(wanted, [](bool one) { return one; })) return {at::Tensor()};
    if (Has16Bits(x)) return {OnCpu(g, wanted)};
    auto [gx, gw, gb] = at::native_layer_norm_backward(g, x, {x.size(-1)}, mean, rstd,
                                                       weight->value, bias->value, wanted);
    if (wanted[1]) weight->AddGradient(gw);
    if (wanted[2]) bias->AddGradient(gb);
    return {gx};
  }
  at::Tensor ResultAgain() const override {
    return std::get<0>(Normalised(x, weight->value, bias->value, eps));
  }
  void ForEachSaved(const Visit& visit) override {
    visit(x);
    visit(mean);
    visit(rstd);
  }
  std::string name() const override { return "LayerNorm(" + weight->name + ")"; }

 private:
  bool AddByOwnKernel(const at::Tensor& g) const {
    const int64_t size = x.size(-1);
    const auto sums =
        OwnColumnSums(g.view({-1, size}), {x.view({-1, size}), mean.flatten(), rstd.flatten()},
                      /*plain=*/true);
    if (!sums) return false;
    weight->AddGradient(sums->weighted);
    bias->AddGradient(sums->plain);
    return true;
  }

  // Of 16 bits on the CPU: the gradient of x where the first is wanted, those of weight and bias
  // where one of the others is.
  at::Tensor OnCpu(const at::Tensor& g, const std::array<bool, 3>& wanted) const {
    const int64_t size = x.size(-1), num_rows = x.numel() / size;
    const LayerNormStatistics statistics = {mean.mutable_data_ptr<float>(),
                                            rstd.mutable_data_ptr<float>()};
    at::Tensor gx = wanted[0] ? at::empty(x.sizes(), x.options()) : at::Tensor();
    at::Tensor sums = at::zeros({2, size}, at::kFloat);
    On16Bits(x, [&](auto type) {
      using T = decltype(type);
      if (wanted[0]) {
        ForRows(num_rows, size, [&](int64_t begin, int64_t end) {
          LayerNormInputGradient({begin, end, size, size}, Data<T>(g), Data<T>(x),
                                 Data<T>(weight->value), statistics, MutableData<T>(gx));
        });
      }
      if (!wanted[1] && !wanted[2]) return;
      auto* of_weight = sums.mutable_data_ptr<float>();
      ForColumns(size, [&](int64_t first, int64_t last) {
        LayerNormWeightGradients({0, num_rows, size, size}, Data<T>(g), Data<T>(x), statistics,
                                 first, last, of_weight, of_weight + size);
      });
    });
    if (wanted[1]) weight->AddGradient(sums.select(0, 0));
    if (wanted[2]) bias->AddGradient(sums.select(0, 1));
    return gx;
  }
};

// Result and 1 / RMS of the rows of x [rows, size], on the CPU.
std::pair<at::Tensor, at::Tensor> RmsNormalised(const at::Tensor& x, const at::Tensor& weight,
                                                double eps) {
  at::Tensor y = at::empty(x.sizes(), x.options());
  at::Tensor rstd = at::empty({x.size(0)}, at::kFloat);
  OnRows(x, [&](auto type, const Rows& rows) {
    using T = decltype(type);
    RmsNormRows(rows, Data<T>(x), Data<T>(weight), static_cast<float>(eps), MutableData<T>(y),
                rstd.mutable_data_ptr<float>());
  });
  return {std::move(y), std::move(rstd)};
}

struct RmsNormNode : ElementwiseNode {
  Parameter* weight = nullptr;
  at::Tensor x, rstd;  // [rows, size]; rstd [rows] fp32
  std::vector<int64_t> input_shape;
  Communicator* group = nullptr;
  double eps = 0;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor g = gradients[0].reshape(x.sizes()).contiguous();
    if (weight->trainable) AddWeightGradient(g);
    if (!task_should_compute_output(0)) return {at::Tensor()};
    at::Tensor gx = at::empty(x.sizes(), g.options());
    const float* scale = rstd.const_data_ptr<float>();
    OnRows(x, [&](auto type, const Rows& rows) {
      using T = decltype(type);
      RmsNormInputGradient(rows, Data<T>(g), Data<T>(x), Data<T>(weight->value), scale,
                           MutableData<T>(gx));
    });
    return {gx.view(input_shape)};
  }
  at::Tensor ResultAgain() const override {
    return RmsNormalised(x, weight->value, eps).first.view(input_shape);
  }
  void ForEachSaved(const Visit& visit) override {
    visit(x);
    visit(rstd);
  }
  std::string name() const override { return "RmsNorm(" + weight->name + ")"; }

 private:
  // Threads share the columns, so that the sums do not depend on their number.
  void AddWeightGradient(const at::Tensor& g) const {
    at::Tensor sum = at::zeros({x.size(1)}, at::kFloat);
    const float* scale = rstd.const_data_ptr<float>();
    ForColumns(x.size(1), [&](int64_t first, int64_t last) {
      OnType(x, {0, x.size(0), x.size(1), x.stride(0)}, [&](auto type, const Rows& rows) {
        using T = decltype(type);
        RmsNormWeightGradient(rows, Data<T>(g), Data<T>(x), scale, first, last,
                              sum.mutable_data_ptr<float>());
      });
    });
    if (group != nullptr) group->AllReduce(sum, ReduceOp::kSum).WaitOnStream();
    weight->AddGradient(sum);
  }
};

// RmsNormNode by LibTorch's fused kernels, for tensors that are not on the CPU.
struct DeviceRmsNormNode : ElementwiseNode {
  Parameter* weight = nullptr;
  at::Tensor x, rstd;  // [rows, size]; rstd [rows, 1] fp32
  std::vector<int64_t> input_shape;
  Communicator* group = nullptr;
  double eps = 0;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor g = gradients[0].reshape(x.sizes());
    std::optional<ColumnSums> own;
    if (weight->trainable) own = OwnColumnSums(g, {x, {}, rstd.flatten()}, /*plain=*/false);
    const std::array<bool, 2> wanted = {task_should_compute_output(0), weight->trainable && !own};
    at::Tensor gx, gw;
    if (wanted[0] || wanted[1]) {
      std::tie(gx, gw) =
          at::_fused_rms_norm_backward(g, x, {x.size(1)}, rstd, weight->value, wanted);
    }
    if (weight->trainable) {
      at::Tensor sum = own ? own->weighted : group == nullptr ? gw : gw.to(at::kFloat);
      if (group != nullptr) group->AllReduce(sum, ReduceOp::kSum).WaitOnStream();
      weight->AddGradient(sum);
    }
    return {wanted[0] ? gx.view(input_shape) : at::Tensor()};
  }
  at::Tensor ResultAgain() const override {
    return std::get<0>(at::_fused_rms_norm(x, {x.size(1)}, weight->value, eps)).view(input_shape);
  }
  void ForEachSaved(const Visit& visit) override {
    visit(x);
    visit(rstd);
  }
  std::string name() const override { return "RmsNorm(" + weight->name + ")"; }
};

at::Tensor RmsNormOnDevice(const at::Tensor& x, Parameter& weight, double eps,
                           Communicator* group) {
  const bool needs_node = NeedsNode({&x}, {&weight});
  const BelowAutograd guard;
  const at::Tensor input = x.reshape({-1, weight.numel()});
  const auto [normal, rstd] = at::_fused_rms_norm(input, {weight.numel()}, weight.value, eps);
  at::Tensor y = normal.view(x.sizes());
  if (!needs_node) return y;
  auto node = std::make_shared<DeviceRmsNormNode>();
  node->weight = &weight;
  node->x = input;
  node->rstd = rstd;
  node->input_shape = x.sizes().vec();
  node->group = group;
  node->eps = eps;
  Record(y, node, {&x});
  return y;
}

}  // namespace

at::Tensor LayerNorm(const at::Tensor& x, Parameter& weight, Parameter& bias, double eps) {
  const bool needs_node = NeedsNode({&x}, {&weight, &bias});
  const BelowAutograd guard;
  const at::Tensor input = x.contiguous();
  auto [y, mean, rstd] = Normalised(input, weight.value, bias.value, eps);
  if (!needs_node) return y;
  auto node = std::make_shared<LayerNormNode>();
  node->weight = &weight;
  node->bias = &bias;
  node->x = input;
  node->mean = mean;
  node->rstd = rstd;
  node->eps = eps;
  Record(y, node, {&x});
  return y;
}

at::Tensor RmsNorm(const at::Tensor& x, Parameter& weight, double eps, Communicator* group) {
  const int64_t size = weight.numel();
  if (!x.is_cpu()) return RmsNormOnDevice(x, weight, eps, group);
  const bool needs_node = NeedsNode({&x}, {&weight});
  const BelowAutograd guard;
  at::Tensor input = x.reshape({-1, size});
  if (input.stride(1) != 1) input = input.contiguous();
  const auto [normal, rstd] = RmsNormalised(input, weight.value, eps);
  at::Tensor y = normal.view(x.sizes());
  if (!needs_node) return y;
  auto node = std::make_shared<RmsNormNode>();
  node->weight = &weight;
  node->x = input;
  node->rstd = rstd;
  node->input_shape = x.sizes().vec();
  node->group = group;
  node->eps = eps;
  Record(y, node, {&x});
  return y;
}

}  // namespace equipoise::ops
