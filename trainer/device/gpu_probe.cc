#include "trainer/device/gpu_probe.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>

#include "parallel/device.h"
#include "trainer/device/memory_stats.h"

namespace equipoise {
namespace {

constexpr double kEnoughSeconds = 0.05;
constexpr double kLeastSeconds = 1e-6;  // what events tell apart
constexpr int kProducts = 5, kCopies = 10;

double ProductFlops(at::Device device) {
  constexpr int64_t kSmallest = 256, kLargest = 16384;
  double flops = 0;
  for (int64_t n = kSmallest; n <= kLargest; n *= 2) {
    const at::Tensor a = at::ones({n, n}, at::TensorOptions(device).dtype(at::kBFloat16));
    at::Tensor product = at::mm(a, a);  // the first one is slower
    const double seconds = DeviceSeconds(device, [&] {
      for (int i = 0; i < kProducts; ++i) at::mm_out(product, a, a);
    });
    const auto size = static_cast<double>(n);
    flops = kProducts * 2 * size * size * size / std::max(seconds, kLeastSeconds);
    if (seconds >= kEnoughSeconds) break;
  }
  return flops;
}

// The largest size counts: smaller ones fit into caches.
double MemoryBytesPerSecond(at::Device device) {
  constexpr int64_t kSmallest = int64_t{1} << 20, kLargest = int64_t{1} << 30;
  double rate = 0;
  for (int64_t bytes = kSmallest; bytes <= kLargest; bytes *= 4) {
    const at::Tensor from = at::ones({bytes}, at::TensorOptions(device).dtype(at::kByte));
    at::Tensor to = at::empty_like(from);
    to.copy_(from);
    const double seconds = DeviceSeconds(device, [&] {
      for (int i = 0; i < kCopies; ++i) to.copy_(from);
    });
    rate = 2.0 * kCopies * static_cast<double>(bytes) / std::max(seconds, kLeastSeconds);
    if (seconds >= kEnoughSeconds) break;
  }
  return rate;
}

}  // namespace

GpuSpeed ProbeGpu(at::Device device) {
  const GpuSpeed speed = {ProductFlops(device), MemoryBytesPerSecond(device)};
  ReturnFreeMemory(device);
  ForgetMemoryPeak(device);
  return speed;
}

}  // namespace equipoise
