#include "models/families/qwen2_vl/patch_table.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <array>
#include <vector>

#include "models/families/qwen2_vl/encoder_specs.h"
#include "models/families/qwen2_vl/image_settings.h"
#include "models/families/qwen2_vl/position_grid.h"
#include "parallel/device.h"

namespace equipoise {
namespace {

template <typename T>
at::Tensor TensorOf(const std::vector<T>& numbers) {
  at::Tensor tensor = at::empty({std::ssize(numbers)}, c10::CppTypeToScalarType<T>::value);
  std::copy(numbers.begin(), numbers.end(), tensor.mutable_data_ptr<T>());
  return tensor;
}

// [4, numbers]
template <typename T>
at::Tensor TableOf(const std::array<std::vector<T>, 4>& table) {
  std::vector<at::Tensor> rows;
  for (const std::vector<T>& row : table) rows.push_back(TensorOf(row));
  return at::stack(rows);
}

}  // namespace

PatchTable::PatchTable(const ModelConfig& config)
    : images_(Qwen2VlImages(config)), side_(PositionSide(config.vision)) {
  const VisionConfig& vision = config.vision;
  const int64_t half = vision.hidden_size / vision.num_attention_heads / 2;
  const at::Tensor exponents = at::arange(0, half, 2, at::kFloat).div(static_cast<double>(half));
  frequencies_ = at::pow(vision.rope_theta, exponents).reciprocal();
}

const PatchTable::Entry& PatchTable::At(const MicroBatch& batch, at::Device device) {
  if (image_grids_.is_same(batch.image_grids)) return entry_;
  const at::NoGradGuard no_grad;
  entry_ = {};
  const std::vector<PatchGrid> grids = GridsOf(batch);
  entry_.layout = LayoutOf(grids, images_);
  const auto angles = [&](const std::vector<int64_t>& positions) {
    return TensorOf(positions).to(at::kFloat).unsqueeze(1).mul(frequencies_);
  };
  const at::Tensor all = at::cat({angles(entry_.layout.rows), angles(entry_.layout.columns)}, 1);
  entry_.cos = ToDevice(all.cos(), device);
  entry_.sin = ToDevice(all.sin(), device);
  if (!entry_.layout.order.empty()) {
    const at::Tensor order = TensorOf(entry_.layout.order);
    entry_.order = ToDevice(order, device);
    entry_.places = ToDevice(order.argsort(), device);
  }
  if (side_ > 0) {
    const PositionGrid places = PositionGridOf(entry_.layout, grids, side_);
    entry_.positions = {ToDevice(TableOf(places.corners), device),
                        ToDevice(TableOf(places.weights), device)};
  }
  image_grids_ = batch.image_grids;
  return entry_;
}

}  // namespace equipoise
