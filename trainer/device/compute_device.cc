#include "trainer/device/compute_device.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <torch/headeronly/version.h>

#include <string>
#include <utility>

#include "configs/base/error.h"
#include "parallel/comm/values.h"
#include "parallel/device.h"
#include "parallel/processor_name.h"
#include "trainer/device/nvidia_driver.h"

namespace equipoise {
namespace {

// Runs a first kernel, so that a driver or a GPU that LibTorch cannot use is refused here rather
// than amid the model.
void TryKernel(at::Device device, const NvidiaDriver& driver) {
  try {
    at::globalContext().lazyInitDevice(at::kCUDA);
    c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device);
    at::ones({1}, device).add_(1);
    Synchronize(device);
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    throw ConfigError(fmt::format(
        "train.device: LibTorch {} cannot use this machine's GPU {} ({}, compute capability {}.x): "
        "{}; install a driver and a LibTorch that fit the GPU, or set it to cpu",
        TORCH_VERSION, device.index(), driver.NameOf(device.index()),
        driver.MajorCapability(device.index()), what.substr(0, what.find('\n'))));
  }
}

at::Device OpenGpu(const NvidiaDriver& driver, const MpiEnvironment& mpi) {
  const int gpus = driver.CountGpus();
  // RTLD_GLOBAL, because LibTorch's CPU libraries look up symbols of it.
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    throw ConfigError(
        fmt::format("train.device: this machine has a GPU, but LibTorch's library for CUDA cannot "
                    "be opened ({}); install LibTorch with CUDA, or set it to cpu",
                    dlerror()));
  }
  const auto index = static_cast<c10::DeviceIndex>(mpi.local_rank() % gpus);
  const at::Device device(at::kCUDA, index);
  TryKernel(device, driver);
  spdlog::info("computing on GPU {} of {} of this machine ({})", index, gpus, driver.NameOf(index));
  return device;
}

}  // namespace

at::Device OpenComputeDevice(const std::string& setting, const MpiEnvironment& mpi) {
  if (setting == "cpu") return at::kCPU;
  const NvidiaDriver driver;
  if (setting == "cuda") return OpenGpu(driver, mpi);
  try {
    driver.CountGpus();
  } catch (const ConfigError&) {
    return at::kCPU;
  }
  return OpenGpu(driver, mpi);
}

DeviceWorld WorldForDevice(std::unique_ptr<Communicator> world, MpiEnvironment& mpi,
                           at::Device device, const std::string& nccl) {
  const auto with_gpu = AllReduceValue<int64_t>(*world, device.is_cpu() ? 0 : 1, ReduceOp::kSum);
  if (with_gpu > 0 && with_gpu < world->size()) {
    throw ConfigError(
        fmt::format("train.device: {} of {} ranks have a GPU; set it to cpu, or start ranks where "
                    "there are GPUs",
                    with_gpu, world->size()));
  }
  if (device.is_cpu()) {
    if (nccl.empty()) return {std::move(world), ""};
    throw ConfigError(
        "parallel.nccl: is for communication between GPUs, and this run computes on CPUs; leave "
        "the key out");
  }
  if (world->size() == 1) return {std::move(world), ""};
  DeviceWorld devices = AddDevices(mpi, std::move(world), nccl, device.index());
  spdlog::info("tensors on GPUs go over {}{}", devices.backend,
               devices.backend.find("NCCL") == std::string::npos
                   ? ""
                   : ": which was never run between GPUs, see docs/gpu.md");
  return devices;
}

std::string DeviceKind(at::Device device) { return device.is_cpu() ? "cpu" : "cuda"; }

std::string DeviceName(at::Device device) {
  return device.is_cpu() ? ProcessorName() : NvidiaDriver().NameOf(device.index());
}

}  // namespace equipoise
