// What a recording libcudart.so.13 says of its GPUs. See runtime.cc.

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string_view>

#include "tests/recording_cuda/gpu_facts.h"

namespace {

constexpr int kDriverNotSupported = 801;
int NotSupported() { return kDriverNotSupported; }

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  if (ClaimedFault() == "driver") return cudaErrorInsufficientDriver;
  *count = ClaimedGpus();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  const GpuClaim& gpu = ClaimedGpu();
  std::memset(p, 0, sizeof *p);
  std::strncpy(p->name, gpu.name, sizeof p->name - 1);
  p->totalGlobalMem = gpu.memory_bytes;
  p->major = gpu.major;
  p->minor = gpu.minor;
  p->multiProcessorCount = gpu.multiprocessors;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = 2048;
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = gpu.shared_bytes;
  p->sharedMemPerMultiprocessor = gpu.shared_bytes + 1024;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->l2CacheSize = 50 << 20;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7fffffff;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->unifiedAddressing = p->canMapHostMemory = 1;
  p->textureAlignment = 512;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const GpuClaim& gpu = ClaimedGpu();
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = gpu.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = gpu.minor;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = gpu.multiprocessors;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = gpu.shared_bytes;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = 48 << 10;
      break;
    case cudaDevAttrWarpSize:
      *value = 32;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = 2048;
      break;
    default:
      *value = 1;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  std::snprintf(id, static_cast<size_t>(bytes), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    default:
      return "an error of the recording CUDA";
  }
}

const char* cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }

// A function of the driver: the recording one's. What it lacks of those without which LibTorch's
// allocator does not begin, sharing memory between processes, is refused when called.
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = dlsym(RTLD_DEFAULT, name);
  const std::string_view wanted(name);
  if (*function == nullptr && (wanted.starts_with("cuMem") || wanted.starts_with("cuStream")))
    *function = reinterpret_cast<void*>(&NotSupported);
  if (result != nullptr) {
    *result =
        *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  }
  return cudaSuccess;
}
}
