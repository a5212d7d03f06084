#include "tests/device/fused_stand_in.h"

#include <ATen/ATen.h>

#include "tests/device/stand_in_memory.h"

namespace equipoise::testing {
namespace {

at::Tensor Wide(const at::Tensor& x) { return StandInOnHost(x).to(at::kDouble); }

void CheckRows(const at::Tensor& x, at::IntArrayRef shape,
               const std::optional<at::Tensor>& weight) {
  TORCH_CHECK(x.is_cuda() && shape.size() == 1 && x.size(-1) == shape[0], "shape of an RMS norm");
  TORCH_CHECK(weight && weight->is_cuda() && weight->sizes() == shape, "weight of an RMS norm");
  TORCH_CHECK(weight->scalar_type() == x.scalar_type(), "weight in ", weight->scalar_type());
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> FusedRmsNorm(const at::Tensor& x, at::IntArrayRef shape,
                                                const std::optional<at::Tensor>& weight,
                                                std::optional<double> eps) {
  CheckRows(x, shape, weight);
  TORCH_CHECK(eps, "an RMS norm without eps");
  const at::Tensor rows = Wide(x);
  const at::Tensor rstd = rows.square().mean(-1, /*keepdim=*/true).add(*eps).rsqrt();
  const at::Tensor y = ToStandIn(rows * rstd * Wide(*weight), x.options()),
                   kept = ToStandIn(rstd, x.options().dtype(at::kFloat));
  ReportUses("aten::_fused_rms_norm", {x, *weight}, {y, kept});
  return {y, kept};
}

std::tuple<at::Tensor, at::Tensor> FusedRmsNormBackward(const at::Tensor& g, const at::Tensor& x,
                                                        at::IntArrayRef shape,
                                                        const at::Tensor& rstd,
                                                        const std::optional<at::Tensor>& weight,
                                                        std::array<bool, 2> wanted) {
  CheckRows(x, shape, weight);
  TORCH_CHECK(g.is_cuda() && g.sizes() == x.sizes() && g.scalar_type() == x.scalar_type(),
              "gradient of an RMS norm");
  TORCH_CHECK(
      rstd.is_cuda() && rstd.scalar_type() == at::kFloat && rstd.numel() * shape[0] == x.numel(),
      "statistics of an RMS norm");
  const at::Tensor scale = Wide(rstd), normal = Wide(x) * scale, up = Wide(g);
  std::tuple<at::Tensor, at::Tensor> result;
  if (wanted[0]) {
    const at::Tensor weighted = up * Wide(*weight);
    const at::Tensor mean = (weighted * normal).mean(-1, /*keepdim=*/true);
    std::get<0>(result) = ToStandIn((weighted - normal * mean) * scale, x.options());
  }
  if (wanted[1]) {
    std::get<1>(result) =
        ToStandIn((up * normal).reshape({-1, shape[0]}).sum(0), weight->options());
  }
  ReportUses("aten::_fused_rms_norm_backward", {g, x, rstd, *weight},
             {std::get<0>(result), std::get<1>(result)});
  return result;
}

at::Tensor& AddProductOut(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                          at::ScalarType dtype, const at::Scalar& beta, const at::Scalar& alpha,
                          at::Tensor& out) {
  TORCH_CHECK(dtype == at::kFloat && self.scalar_type() == dtype && out.scalar_type() == dtype,
              "a product added to ", self.scalar_type());
  TORCH_CHECK(a.scalar_type() == b.scalar_type() && c10::elementSize(a.scalar_type()) == 2,
              "a product of ", a.scalar_type());
  TORCH_CHECK(self.is_cuda() && a.is_cuda() && b.is_cuda() && out.is_cuda(), "devices");
  const at::Tensor product = at::mm(Wide(a), Wide(b)) * alpha;
  StandInOnHost(out).copy_(Wide(self) * beta + product);
  ReportUses("aten::addmm.dtype_out", {self, a, b}, {out});
  return out;
}

}  // namespace equipoise::testing
