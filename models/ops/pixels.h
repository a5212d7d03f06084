#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "models/spec/image_spec.h"

namespace equipoise::ops {

// Normalization of pictures on the device that computes with them, to which they travel as bytes.
class PixelScale {
 public:
  // Of the spec's mean and deviation.
  PixelScale(const ImageSpec& spec, at::Device device);

  // `pixels` on the device, uint8 of any shape [n, ...] whose rows hold one channel after the
  // other, red first -> fp32 of that shape: (x / 255 - mean) / deviation, in fp32 and in this
  // order, as torchvision's ToTensor and Normalize do. A device divides by tensors: by a number
  // CUDA would multiply by its reciprocal, which is another result.
  at::Tensor operator()(const at::Tensor& pixels) const;

 private:
  std::array<float, 3> means_, deviations_;  // by channel
  at::Tensor scale_, mean_, deviation_;      // 255 and the same on the device; [1 or 3, 1]
};

}  // namespace equipoise::ops
