#include "models/ops/pixels.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "configs/base/error.h"
#include "parallel/device.h"
#include "parallel/intra_op.h"

namespace equipoise::ops {
namespace {

constexpr int64_t kChannels = 3, kValues = 256;
constexpr int64_t kElementGrain = 1 << 15;  // elements of a task

// [n, 3, count] bytes -> fp32, by a table of each channel.
at::Tensor LookUp(const at::Tensor& channels, const at::Tensor& table) {
  at::Tensor scaled = at::empty(channels.sizes(), at::kFloat);
  const uint8_t* from = channels.const_data_ptr<uint8_t>();
  const float* values = table.const_data_ptr<float>();
  float* to = scaled.mutable_data_ptr<float>();
  const int64_t count = channels.size(2);
  const int64_t grain = std::max<int64_t>(1, kElementGrain / std::max<int64_t>(1, count));
  IntraOpFor(0, channels.size(0) * kChannels, grain, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const float* of = values + plane % kChannels * kValues;
      std::transform(from + plane * count, from + (plane + 1) * count, to + plane * count,
                     [of](uint8_t byte) { return of[byte]; });
    }
  });
  return scaled;
}

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
  if (!device.is_cpu()) return;
  const at::Tensor bytes = at::arange(kValues, at::kByte).expand({kChannels, kValues});
  table_ = at::div(bytes, scale_).sub_(mean_).div_(deviation_);
}

at::Tensor PixelScale::operator()(const at::Tensor& pixels) const {
  EQUIPOISE_CHECK(pixels.scalar_type() == at::kByte, pixels.scalar_type());
  const at::Tensor channels = pixels.reshape({pixels.size(0), kChannels, -1});
  if (table_.defined()) return LookUp(channels.contiguous(), table_).view(pixels.sizes());
  return at::div(channels, scale_).sub_(mean_).div_(deviation_).view(pixels.sizes());
}

}  // namespace equipoise::ops
