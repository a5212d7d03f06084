#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi_environment.h"

namespace equipoise {

// The device of this rank, by `setting` (train.device): "cpu"; "cuda", GPU (local rank modulo
// number of GPUs) of the machine; "auto", the same if there is a GPU, else the CPU. For a GPU,
// LibTorch's CUDA library is opened and the GPU becomes the thread's current device; without a GPU
// nothing is opened, which keeps the start fast. Must be called before LibTorch is asked for CUDA.
// Throws ConfigError for "cuda" without a usable GPU, and when LibTorch cannot use the machine's
// GPUs.
at::Device OpenComputeDevice(const std::string& setting, const MpiEnvironment& mpi);

// `world` extended to tensors on this rank's device. Collective. REQUIRES: every rank has opened
// its device. `nccl`: parallel.nccl. Throws ConfigError when ranks have different kinds of devices.
DeviceWorld WorldForDevice(std::unique_ptr<Communicator> world, MpiEnvironment& mpi,
                           at::Device device, const std::string& nccl);

// The kind of a device, "cpu" or "cuda".
std::string DeviceKind(at::Device device);

// The name of the processor or the GPU.
std::string DeviceName(at::Device device);

}  // namespace equipoise
