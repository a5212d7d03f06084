#include "models/ops/pixels.h"

#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "configs/base/error.h"
#include "configs/base/vector_clones.h"
#include "parallel/device.h"
#include "parallel/intra_op.h"

namespace equipoise::ops {
namespace {

constexpr int64_t kChannels = 3;
constexpr float kMost = 255;                // of a byte
constexpr int64_t kElementGrain = 1 << 15;  // elements of a task

// Of one channel. A single pass: LibTorch's operations would be three, each of which writes all.
EQUIPOISE_VECTOR
void ScaleChannel(const uint8_t* from, int64_t count, float mean, float deviation, float* to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = (static_cast<float>(from[i]) / kMost - mean) / deviation;
}

// [n, 3, count] bytes -> fp32.
at::Tensor ScaleOnHost(const at::Tensor& channels, const std::array<float, kChannels>& means,
                       const std::array<float, kChannels>& deviations) {
  at::Tensor scaled = at::empty(channels.sizes(), at::kFloat);
  const uint8_t* from = channels.const_data_ptr<uint8_t>();
  float* to = scaled.mutable_data_ptr<float>();
  const int64_t count = channels.size(2);
  const int64_t grain = std::max<int64_t>(1, kElementGrain / std::max<int64_t>(1, count));
  IntraOpFor(0, channels.size(0) * kChannels, grain, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const auto channel = static_cast<size_t>(plane % kChannels);
      ScaleChannel(from + plane * count, count, means[channel], deviations[channel],
                   to + plane * count);
    }
  });
  return scaled;
}

}  // namespace

PixelScale::PixelScale(const ImageSpec& spec, at::Device device)
    : means_(spec.mean), deviations_(spec.deviation) {
  const at::Tensor host = at::empty({1 + 2 * kChannels, 1}, at::kFloat);
  float* numbers = host.mutable_data_ptr<float>();
  numbers[0] = kMost;
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
  if (channels.is_cpu())
    return ScaleOnHost(channels.contiguous(), means_, deviations_).view(pixels.sizes());
  return at::div(channels, scale_).sub_(mean_).div_(deviation_).view(pixels.sizes());
}

}  // namespace equipoise::ops
