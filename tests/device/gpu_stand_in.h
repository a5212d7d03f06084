#pragma once

#include <cstdint>

namespace equipoise::testing {

// A stand-in for GPUs, linked into a test: tensors "on CUDA" without CUDA or a GPU. Every operation
// on them is run by LibTorch's CPU kernel on the same numbers, so that results can be compared. It
// is as strict as a GPU where that finds faults:
//   - their memory cannot be read by the host: data_ptr() is an address that faults;
//   - an operation on tensors of several devices throws, save for scalars;
//   - what LibTorch has for CUDA alone (flash attention) takes what it takes there, and throws
//     otherwise.
// It says nothing about the kernels of CUDA, about streams, nor about speed. A program linked to it
// must not load CUDA. `kStandInGpus` of them; backward runs on a thread of each, as on GPUs.
constexpr int kStandInGpus = 2;

// Operations run on the stand-in so far by all threads, and copies from it to the host.
struct GpuCounts {
  int64_t operations = 0, reads = 0, flash_attentions = 0;
};
GpuCounts CountsOfStandIn();

// The address behind data_ptr() of a tensor of the stand-in, for tests that play CUDA's copies.
void* HostAddress(const void* data);

}  // namespace equipoise::testing
