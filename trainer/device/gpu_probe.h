#pragma once

#include <c10/core/Device.h>

namespace equipoise {

// What a GPU reaches, where no preset and no profile says it.
struct GpuSpeed {
  double product_flops = 0;       // FLOP/s in a large matrix product in bf16
  double memory_bytes_per_s = 0;  // read and written by a copy within its memory
};

// Measures it, on sizes that grow until a measurement takes 50 ms: about a second, and 2 GiB of its
// memory.
GpuSpeed ProbeGpu(at::Device device);

}  // namespace equipoise
