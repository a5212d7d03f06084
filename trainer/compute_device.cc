#include "trainer/compute_device.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <spdlog/spdlog.h>

#include <array>
#include <utility>

#include "configs/error.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/processor_name.h"

namespace equipoise {
namespace {

// NVIDIA's driver, which every machine with a usable GPU has: how many there are, before the
// libraries are opened that compute on them.
class Driver {
 public:
  Driver() : handle_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {}

  // Throws ConfigError that says why there is none.
  int CountGpus() const {
    if (handle_ == nullptr) Refuse("NVIDIA's driver, libcuda.so.1, is not there");
    int count = 0;
    const int error = Call<int(unsigned)>("cuInit", 0U);
    if (error != 0) Refuse("NVIDIA's driver does not start, error " + std::to_string(error));
    if (Call<int(int*)>("cuDeviceGetCount", &count) != 0 || count == 0) Refuse("none found");
    return count;
  }
  // REQUIRES: CountGpus() > index.
  std::string NameOf(int index) const {
    std::array<char, 256> name = {};
    Call<int(char*, int, int)>("cuDeviceGetName", name.data(), static_cast<int>(name.size() - 1),
                               index);
    return name.data();
  }

 private:
  [[noreturn]] static void Refuse(const std::string& why) {
    throw ConfigError("train.device: this machine has no usable GPU (" + why +
                      "); set it to cpu or auto");
  }
  template <class Signature, class... Arguments>
  int Call(const char* symbol, Arguments... arguments) const {
    auto* function = reinterpret_cast<Signature*>(dlsym(handle_, symbol));
    if (function == nullptr) Refuse(std::string("NVIDIA's driver has no ") + symbol);
    return function(arguments...);
  }

  void* handle_;  // never closed: CUDA goes on using it
};

at::Device OpenGpu(const Driver& driver, const MpiEnvironment& mpi) {
  const int gpus = driver.CountGpus();
  // Global, for what LibTorch's CPU libraries look up in it.
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    throw ConfigError(std::string("train.device: this machine has a GPU, but LibTorch's library ") +
                      "for CUDA cannot be opened (" + dlerror() +
                      "); install LibTorch with CUDA, or set it to cpu");
  }
  const auto index = static_cast<c10::DeviceIndex>(mpi.local_rank() % gpus);
  const at::Device device(at::kCUDA, index);
  at::globalContext().lazyInitDevice(at::kCUDA);
  c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device);
  spdlog::warn(
      "computing on {} GPUs of this machine ({}): code that was never run on a GPU, see "
      "docs/gpu.md",
      gpus, driver.NameOf(index));
  return device;
}

}  // namespace

at::Device OpenComputeDevice(const std::string& setting, const MpiEnvironment& mpi) {
  if (setting == "cpu") return at::kCPU;
  const Driver driver;
  if (setting == "cuda") return OpenGpu(driver, mpi);
  try {
    driver.CountGpus();
  } catch (const ConfigError&) {
    return at::kCPU;
  }
  return OpenGpu(driver, mpi);
}

std::unique_ptr<Communicator> WorldForDevice(std::unique_ptr<Communicator> world,
                                             MpiEnvironment& mpi, at::Device device,
                                             const std::string& nccl) {
  at::Tensor gpus = at::scalar_tensor(device.is_cpu() ? 0 : 1, at::kLong);
  world->AllReduce(gpus, ReduceOp::kSum).Wait();
  const auto with_gpu = gpus.item<int64_t>();
  if (with_gpu > 0 && with_gpu < world->size()) {
    throw ConfigError("train.device: " + std::to_string(with_gpu) + " of " +
                      std::to_string(world->size()) +
                      " ranks have a GPU; set it to cpu, or start ranks where there are GPUs");
  }
  if (device.is_cpu()) {
    if (nccl.empty()) return world;
    throw ConfigError(
        "parallel.nccl: is for communication between GPUs, and this run computes on CPUs; leave "
        "the key out");
  }
  if (world->size() == 1) return world;
  DeviceWorld devices = AddDevices(mpi, std::move(world), nccl, device.index());
  spdlog::warn("tensors on GPUs go over {}: code that was never run on a GPU, see docs/gpu.md",
               devices.backend);
  return std::move(devices.world);
}

std::string DeviceKind(at::Device device) { return device.is_cpu() ? "cpu" : "cuda"; }

std::string DeviceName(at::Device device) {
  return device.is_cpu() ? ProcessorName() : Driver().NameOf(device.index());
}

}  // namespace equipoise
