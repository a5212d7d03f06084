#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/kernels/kernel_image.h"

namespace equipoise {

// The program's own kernels, of operations (models/ops/kernels) and of the optimizer
// (parallel/zero/kernels).
struct OwnKernels {
  std::unique_ptr<KernelImage> of_operations, of_optimizer;
};
// Loads them onto the current GPU. Throws RunError with the cause.
OwnKernels LoadOwnKernels();
// Has operations on GPUs run by them, for the rest of the process. To be called once, before the
// first operation of a model.
void UseOwnKernels(OwnKernels kernels);

// Has operations on GPUs run by the program's own kernels, and on CPUs where MKL is slow fp32
// products and weights' gradients in bf16 by oneDNN and attention in bf16 by own code, by `setting`
// (train.kernels): "auto"; "aten": all by LibTorch's. Collective over `world`. REQUIRES: every rank
// has opened its device, of one kind. Throws ConfigError, the same on all ranks, when some rank
// cannot load the kernels.
void OpenKernels(const std::string& setting, at::Device device, Communicator& world);

// Whose kernels compute attention on a device, by train.attention: "flash", LibTorch's;
// "cudnn_tiles", cuDNN's where all tiles see all of their rows. "auto" is the latter from Hopper
// on, where it takes 0.63 of the time, but for train.deterministic.
std::string AttentionOn(at::Device device, const std::string& setting, bool deterministic);

// Sets it for the rest of the process. REQUIRES: a result of AttentionOn().
void ChooseAttention(const std::string& setting);

}  // namespace equipoise
