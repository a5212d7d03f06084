#pragma once

#include <ATen/core/Tensor.h>

#include "models/spec/image_spec.h"

namespace equipoise::ops {

// Normalization of pictures on the device that computes with them, to which they travel as bytes.
class PixelScale {
 public:
  // Of the spec's mean and deviation.
  PixelScale(const ImageSpec& spec, at::Device device);

  // `pixels` on the device, uint8 of any shape [n, ...] whose rows hold one channel after the
  // other, red first -> fp32 of that shape: (x / 255 - mean) / deviation, in fp32 and in this
  // order, as torchvision's ToTensor and Normalize do. On a CPU each of the 256 values is looked
  // up. A device divides by tensors: by a number CUDA would multiply by its reciprocal, which is
  // another result.
  at::Tensor operator()(const at::Tensor& pixels) const;

 private:
  at::Tensor scale_, mean_, deviation_;  // 255 and, by channel, the spec's; [1 or 3, 1]
  at::Tensor table_;                     // on a CPU: of each channel, the result of each byte
};

}  // namespace equipoise::ops
