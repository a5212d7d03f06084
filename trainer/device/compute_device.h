#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi_environment.h"

namespace equipoise {

// Where this rank computes, as `train.device` says. cpu: the CPU. cuda: a GPU of its machine, whose
// ranks take them in turn. auto: that where there is one, else the CPU. For a GPU LibTorch's CUDA
// library is opened and the GPU made this thread's; a machine without one opens nothing, and starts
// as fast as before. To be called before anything asks LibTorch for CUDA. Throws ConfigError for
// `cuda` without a usable GPU, and where a GPU is there that LibTorch cannot use.
at::Device OpenComputeDevice(const std::string& setting, const MpiEnvironment& mpi);

// `world` for tensors on this rank's device too. Collective; every rank has opened its device.
// `nccl`: `parallel.nccl`. Throws ConfigError where ranks compute on different kinds of devices.
std::unique_ptr<Communicator> WorldForDevice(std::unique_ptr<Communicator> world,
                                             MpiEnvironment& mpi, at::Device device,
                                             const std::string& nccl);

// "cpu" or "cuda".
std::string DeviceKind(at::Device device);

// The processor's name, or the GPU's.
std::string DeviceName(at::Device device);

}  // namespace equipoise
