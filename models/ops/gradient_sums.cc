#include "models/ops/gradient_sums.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include "models/ops/matrix_product.h"
#include "models/ops/row_dispatch.h"
#include "parallel/intra_op.h"
#include "parallel/kernels/own_operator.h"

namespace equipoise::ops {
namespace {

constexpr int64_t kElementGrain = 1 << 15;  // fewest elements for a thread

}  // namespace

void AddTo(const at::Tensor& gradient, const at::Tensor& d) {
  if (!Has16Bits(d) || !d.is_contiguous() || !gradient.is_contiguous()) {
    gradient.add_(d);
    return;
  }
  EQUIPOISE_CHECK(gradient.scalar_type() == at::kFloat && gradient.sizes() == d.sizes());
  auto* sums = gradient.mutable_data_ptr<float>();
  IntraOpFor(0, d.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
    On16Bits(d, [&](auto type) {
      AddElements(end - begin, Data<decltype(type)>(d) + begin, sums + begin);
    });
  });
}

void AddProduct(const at::Tensor& gradient, const at::Tensor& g, const at::Tensor& x) {
  at::Tensor sum = gradient;
  if (g.scalar_type() == gradient.scalar_type()) {
    AddMatrixProduct(sum, g.t(), x);
  } else if (g.is_cpu()) {
    if (!AddBf16Product(gradient, g.t(), x)) AddTo(gradient, MatrixProduct(g.t(), x));
  } else {
    at::addmm_out(sum, gradient, g.t(), x, at::kFloat);
  }
}

std::optional<ColumnSums> OwnColumnSums(const at::Tensor& g, const WeightedRows& rows, bool plain) {
  using Given = std::optional<at::Tensor>;
  static const OwnOperator<at::Tensor(const at::Tensor&, const Given&, const Given&, const Given&,
                                      bool)>
      own("equipoise::column_sums");
  if (!own.IsFor(g)) return {};
  const auto given = [](const at::Tensor& t, at::ScalarType dtype) {
    return t.defined() ? Given(t.to(dtype)) : std::nullopt;
  };
  const at::Tensor sums = own(g, given(rows.x, g.scalar_type()), given(rows.mean, at::kFloat),
                              given(rows.rstd, at::kFloat), plain);
  return ColumnSums{sums.select(0, 0), plain ? sums.select(0, 1) : at::Tensor()};
}

at::Tensor SumOfRows(const at::Tensor& g) {
  if (const auto own = OwnColumnSums(g, {}, /*plain=*/false)) return own->weighted;
  if (!Has16Bits(g) || g.stride(1) != 1) return at::sum(g, {0}, /*keepdim=*/false, at::kFloat);
  at::Tensor sum = at::zeros({g.size(1)}, at::kFloat);
  auto* sums = sum.mutable_data_ptr<float>();
  // Threads share the columns.
  ForColumns(g.size(1), [&](int64_t first, int64_t last) {
    On16Bits(g, [&](auto type) {
      const Rows rows = {0, g.size(0), last - first, g.stride(0)};
      AddRows(rows, Data<decltype(type)>(g) + first, sums + first);
    });
  });
  return sum;
}

}  // namespace equipoise::ops
