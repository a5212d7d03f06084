#pragma once

namespace equipoise::testing {

// Whether tensors on the stand-in of GPUs take the program's own kernels (models/ops/kernels,
// parallel/zero/kernels), whose row functions are run, as they do in a program that links this,
// unless it was called.
void UseOwnKernels(bool use);

}  // namespace equipoise::testing
