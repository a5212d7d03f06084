#pragma once

#include "parallel/kernels/row_team.h"

namespace equipoise::kernels {

// The threads of a block as a team.
template <class Memory>
struct Block {
  Memory& shared;
  int64_t thread, threads;
  __device__ void Wait() const { __syncthreads(); }
};

}  // namespace equipoise::kernels

// A kernel of which block i computes row i: LIST(EQUIPOISE_KERNEL_ENTRY) of a list of kernels,
// within namespace equipoise::kernels.
#define EQUIPOISE_KERNEL_ENTRY(name, ...)                                                      \
  extern "C" __global__ void __launch_bounds__(kMostThreads)                                   \
      name(const __grid_constant__ __VA_ARGS__ function) {                                     \
    __shared__ __VA_ARGS__::Shared memory;                                                     \
    RunRow(function, blockIdx.x, Block<__VA_ARGS__::Shared>{memory, threadIdx.x, blockDim.x}); \
  }
