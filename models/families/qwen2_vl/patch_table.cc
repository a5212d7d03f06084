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

#include <algorithm>

#include "models/families/qwen2_vl/image_settings.h"
#include "parallel/device.h"

namespace equipoise {
namespace {

at::Tensor Int64s(const std::vector<int64_t>& numbers) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(numbers.size())}, at::kLong);
  std::copy(numbers.begin(), numbers.end(), tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

}  // namespace

PatchTable::PatchTable(const ModelConfig& config) : images_(Qwen2VlImages(config)) {
  const VisionConfig& vision = config.vision;
  const int64_t half = vision.hidden_size / vision.num_attention_heads / 2;
  const at::Tensor exponents = at::arange(0, half, 2, at::kFloat).div(static_cast<double>(half));
  frequencies_ = at::pow(vision.rope_theta, exponents).reciprocal();
}

const PatchTable::Entry& PatchTable::At(const MicroBatch& batch, at::Device device) {
  if (image_grids_.is_same(batch.image_grids)) return entry_;
  const at::NoGradGuard no_grad;
  entry_ = {};
  entry_.layout = LayoutOf(GridsOf(batch), images_);
  const auto angles = [&](const std::vector<int64_t>& positions) {
    return Int64s(positions).to(at::kFloat).unsqueeze(1).mul(frequencies_);
  };
  const at::Tensor all = at::cat({angles(entry_.layout.rows), angles(entry_.layout.columns)}, 1);
  entry_.cos = ToDevice(all.cos(), device);
  entry_.sin = ToDevice(all.sin(), device);
  if (!entry_.layout.order.empty()) {
    const at::Tensor order = Int64s(entry_.layout.order);
    entry_.order = ToDevice(order, device);
    entry_.places = ToDevice(order.argsort(), device);
  }
  image_grids_ = batch.image_grids;
  return entry_;
}

}  // namespace equipoise
