#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace equipoise::testing {

// Copies between a GPU of the stand-in and pinned memory that the host does not wait for: they are
// done when it does. To the host: until then its memory holds NaNs; so does what it reads too
// early. From the host: its memory is to stay as it is until then, or the wait throws. The GPU
// makes its copies in order: one from memory that a late copy goes to has the numbers of that copy.

// `gpu_numbers`, `host`: tensors of the host.
void CopyLate(int gpu, const at::Tensor& gpu_numbers, at::Tensor host);
// Returns what the GPU reads.
at::Tensor CopiedFromHost(int gpu, const at::Tensor& host);

// The number of such copies that a GPU was given so far; the host has waited for the first `count`
// of them.
int64_t LateCopies(int gpu);
void Arrived(int gpu, int64_t count);

}  // namespace equipoise::testing
