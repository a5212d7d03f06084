// The kernels of kernel_list.h: a block computes a row.

#include "models/ops/kernels/kernel_list.h"

namespace equipoise::ops {
namespace {

struct Block {
  int64_t thread = threadIdx.x, threads = blockDim.x;
};

}  // namespace

#define EQUIPOISE_ENTRY(name, ...)                                                     \
  extern "C" __global__ void __launch_bounds__(256) name(const __VA_ARGS__ function) { \
    function.Run(blockIdx.x, Block());                                                 \
  }
EQUIPOISE_ROW_KERNELS(EQUIPOISE_ENTRY)
#undef EQUIPOISE_ENTRY

}  // namespace equipoise::ops
