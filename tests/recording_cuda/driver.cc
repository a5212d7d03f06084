// A recording libcuda.so.1: what the program and LibTorch ask NVIDIA's driver. See runtime.cc.

#include <cuda.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstring>

#include "tests/recording_cuda/gpu_facts.h"
#include "tests/recording_cuda/recording.h"

#undef cuDevicePrimaryCtxRelease
#undef cuDeviceTotalMem

namespace {

// Of a GPU's memory, cuMemCreate's.
struct Piece {
  int gpu;
  int64_t bytes;
};

}  // namespace

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }

CUresult cuDeviceGetCount(int* count) {
  *count = ClaimedGpus();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int index) {
  *device = index;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int bytes, CUdevice) {
  std::snprintf(name, static_cast<size_t>(bytes), "%s", ClaimedGpu().name);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  *bytes = static_cast<size_t>(ClaimedGpu().memory_bytes);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? ClaimedGpu().major
           : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? ClaimedGpu().minor
           : attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? ClaimedGpu().multiprocessors
                                                                   : 1;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(1);
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }

CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "an error of the recording CUDA";
  return CUDA_SUCCESS;
}

// Kernels of the program's own: a module is its image, a function the copy of its name.

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  if (ClaimedFault() == "image") return CUDA_ERROR_NO_BINARY_FOR_GPU;
  *module = reinterpret_cast<CUmodule>(const_cast<void*>(image));
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  // A fatbin: 16 bytes of header, of which the last 8 are the size of what follows.
  size_t bytes = 0;
  std::memcpy(&bytes, reinterpret_cast<const char*>(module) + 8, sizeof bytes);
  if (memmem(module, bytes + 16, name, std::strlen(name) + 1) == nullptr)
    return CUDA_ERROR_NOT_FOUND;
  *function = reinterpret_cast<CUfunction>(strdup(name));
  return CUDA_SUCCESS;
}

// Virtual memory, of which LibTorch's expandable segments are made: addresses that fault, behind
// which pieces of the GPU's memory are put.

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *bytes = size_t{2} << 20;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* begin, size_t bytes, size_t, CUdeviceptr,
                             unsigned long long) {
  // Aligned to pages of a GPU.
  constexpr size_t kPage = size_t{2} << 20;
  void* memory =
      mmap(nullptr, bytes + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *begin = (reinterpret_cast<uintptr_t>(memory) + kPage - 1) / kPage * kPage;
  return CUDA_SUCCESS;
}

// The addresses stay reserved: nothing else is to be found there.
CUresult cuMemAddressFree(CUdeviceptr, size_t) { return CUDA_SUCCESS; }

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long) {
  const int gpu = properties->location.id;
  if (RecordingCudaTake(gpu, static_cast<int64_t>(bytes)) == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = reinterpret_cast<uintptr_t>(new Piece{gpu, static_cast<int64_t>(bytes)});
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const auto* piece = reinterpret_cast<Piece*>(handle);
  RecordingCudaTake(piece->gpu, -piece->bytes);
  delete piece;
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr begin, size_t bytes, size_t, CUmemGenericAllocationHandle,
                  unsigned long long) {
  RecordingCudaMap(reinterpret_cast<void*>(begin), static_cast<int64_t>(bytes));
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr begin, size_t) {
  RecordingCudaUnmap(reinterpret_cast<void*>(begin));
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }

CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, unsigned, CUstream, void**, void**) {
  RecordingCudaLaunch(reinterpret_cast<const char*>(function));
  return CUDA_SUCCESS;
}
}
