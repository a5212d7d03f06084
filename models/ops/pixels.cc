#include "models/ops/pixels.h"

#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "configs/base/error.h"
#include "parallel/device.h"

namespace equipoise::ops {
namespace {

constexpr int64_t kChannels = 3;

}  // namespace

PixelScale::PixelScale(const ImageSpec& spec, at::Device device) {
  const at::Tensor host = at::empty({1 + 2 * kChannels, 1}, at::kFloat);
  float* numbers = host.mutable_data_ptr<float>();
  numbers[0] = 255;
  std::copy(spec.mean.begin(), spec.mean.end(), numbers + 1);
  std::copy(spec.deviation.begin(), spec.deviation.end(), numbers + 1 + kChannels);
  const at::Tensor all = ToDevice(host, device);
  scale_ = all.narrow(0, 0, 1);
  mean_ = all.narrow(0, 1, kChannels);
  deviation_ = all.narrow(0, 1 + kChannels, kChannels);
}

at::Tensor PixelScale::operator()(const at::Tensor& pixels) const {
  EQUIPOISE_CHECK(pixels.scalar_type() == at::kByte, pixels.scalar_type());
  const at::Tensor channels = pixels.reshape({pixels.size(0), kChannels, -1});
  return at::div(channels, scale_).sub_(mean_).div_(deviation_).view(pixels.sizes());
}

}  // namespace equipoise::ops
