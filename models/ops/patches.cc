#include "models/ops/patches.h"

#include <ATen/ops/empty.h>

#include <cmath>

#include "configs/base/error.h"
#include "models/ops/record.h"
#include "models/ops/run_copy.h"

namespace equipoise::ops {
namespace {

// The patches of x [n, 1 + side * side, hidden] as [n, side / r, side / r, r, r, hidden].
at::Tensor Squares(const at::Tensor& x, int64_t r) {
  const int64_t patches = x.size(1) - 1;
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(patches))));
  EQUIPOISE_CHECK(side * side == patches && side % r == 0, patches, " patches in squares of ", r);
  return x.narrow(1, 1, patches)
      .view({x.size(0), side / r, r, side / r, r, x.size(2)})
      .permute({0, 1, 3, 2, 4, 5});
}

struct MergeSquaresNode : torch::autograd::Node {
  std::vector<int64_t> input_shape;
  int64_t r = 0;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    at::Tensor result = at::empty(input_shape, gradients[0].options());
    result.select(1, 0).zero_();
    at::Tensor squares = Squares(result, r);
    CopyRuns(gradients[0].view(squares.sizes()), squares);
    return {result};
  }
  std::string name() const override { return "MergeSquares"; }
};

}  // namespace

at::Tensor CutIntoPatches(const at::Tensor& images, int64_t patch, at::ScalarType dtype) {
  const int64_t n = images.size(0), channels = images.size(1), side = images.size(2) / patch;
  at::Tensor y = at::empty({n, side, side, channels, patch, patch}, images.options().dtype(dtype));
  // On the CPU runs are copied as they are; elsewhere one pass converts too.
  const at::Tensor pixels = images.is_cpu() ? images.to(dtype) : images;
  const at::Tensor whole = pixels.narrow(2, 0, side * patch).narrow(3, 0, side * patch);
  CopyRuns(
      whole.unflatten(3, {side, patch}).unflatten(2, {side, patch}).permute({0, 2, 4, 1, 3, 5}), y);
  return y.view({n, side * side, channels * patch * patch});
}

at::Tensor MergeSquares(const at::Tensor& x, int64_t r) {
  const bool needs_node = NeedsNode({&x}, {});
  const BelowAutograd guard;
  const at::Tensor squares = Squares(x, r);
  at::Tensor y = at::empty(squares.sizes(), x.options());
  CopyRuns(squares, y);
  y = y.view({x.size(0), y.size(1) * y.size(2), r * r * x.size(2)});
  if (!needs_node) return y;
  auto node = std::make_shared<MergeSquaresNode>();
  node->input_shape = x.sizes().vec();
  node->r = r;
  Record(y, node, {&x});
  return y;
}

}  // namespace equipoise::ops
