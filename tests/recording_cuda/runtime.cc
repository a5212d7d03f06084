// A recording libcudart.so.13. The real LibTorch believes in a GPU, its checks and its caching
// allocator run as on one, and nothing is computed: device memory is reserved addresses that fault
// when touched, a launch is a count under its kernel's name, a copy is checked against what was
// reserved, and every event has passed. What the host reads of the device is zeros.
//
// Preloaded, its soname stands before the search path of LibTorch's own libraries. Structures and
// signatures come from the headers of the CUDA version that LibTorch was built for.
//
//   RECORDING_CUDA_DEVICE=h100|h200|a100|other   the GPU it claims to be (default h200);
//                                                other: one that nobody knows
//   RECORDING_CUDA_MEMORY_MIB=N            with so much memory (default: what such a GPU has)
//   RECORDING_CUDA_GPUS=N                  how many of them (default 1)
//   RECORDING_CUDA_FAULT=driver|kernel|image   a driver that is too old; a GPU without kernels;
//                                          one without the program's own kernels

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tests/recording_cuda/gpu_facts.h"
#include "tests/recording_cuda/recording.h"

namespace {

thread_local int current_gpu = 0;
thread_local int64_t thread_work = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t Fail(cudaError_t error, const char* why) {
  std::fprintf(stderr, "recording CUDA: %s\n", why);
  last_error = error;
  return error;
}

// Ranges of addresses.
class Ranges {
 public:
  void Add(const void* begin, size_t bytes) { ends_[Address(begin)] = Address(begin) + bytes; }
  // The size of the range that begins here, which is forgotten; 0: none does.
  size_t Remove(const void* begin) {
    const auto found = ends_.find(Address(begin));
    if (found == ends_.end()) return 0;
    const size_t bytes = found->second - found->first;
    ends_.erase(found);
    return bytes;
  }
  // Whether one range holds all of [begin, begin + bytes).
  bool Holds(const void* begin, size_t bytes) const {
    auto after = ends_.upper_bound(Address(begin));
    if (after == ends_.begin()) return false;
    return Address(begin) + bytes <= (--after)->second;
  }
  // Whether neighbours together do.
  bool HoldTogether(const void* begin, size_t bytes) const {
    uintptr_t at = Address(begin);
    const uintptr_t end = at + bytes;
    while (at < end) {
      auto after = ends_.upper_bound(at);
      if (after == ends_.begin() || (--after)->second <= at) return false;
      at = after->second;
    }
    return true;
  }

 private:
  static uintptr_t Address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }
  std::map<uintptr_t, uintptr_t> ends_;
};

// All that is recorded. Never destroyed: LibTorch calls until the very end.
struct Recording {
  std::mutex mutex;
  Ranges device, pinned;
  Ranges mapped;  // device memory behind virtual addresses, a piece after the other
  std::array<int64_t, 64> reserved = {};               // bytes of each GPU
  std::map<uintptr_t, int> gpu_of;                     // of device memory, by its address
  std::unordered_map<const void*, std::string> names;  // of kernels, by their host function
  std::unordered_map<std::string, int64_t> kernel_launches;
  std::unordered_map<cudaEvent_t, int64_t> recorded;  // by event: the number of its last record
  std::atomic<int64_t> launches{0}, to_host{0}, to_device{0}, within{0}, synchronizations{0};
  std::atomic<int64_t> events{0}, stream_waits{0}, handles{0x1000};

  bool OnDevice(const void* begin, size_t bytes) const {
    return device.Holds(begin, bytes) || mapped.HoldTogether(begin, bytes);
  }
};

Recording& All() {
  static auto* all = new Recording;
  return *all;
}

template <class Handle>
Handle NewHandle() {
  return reinterpret_cast<Handle>(static_cast<uintptr_t>(++All().handles));
}

cudaError_t Launch(const void* function) {
  if (ClaimedFault() == "kernel") return last_error = cudaErrorNoKernelImageForDevice;
  std::string name = "unknown";
  {
    const std::lock_guard lock(All().mutex);
    const auto found = All().names.find(function);
    if (found != All().names.end()) name = found->second;
  }
  RecordingCudaLaunch(name.c_str());
  return cudaSuccess;
}

cudaError_t Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return cudaSuccess;
  bool to_device = false, from_device = false;
  {
    const std::lock_guard lock(All().mutex);
    to_device = All().OnDevice(to, bytes);
    from_device = All().OnDevice(from, bytes);
  }
  if (kind == cudaMemcpyDefault) {
    kind = to_device ? (from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                     : (from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
  }
  const bool writes_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool reads_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (writes_device != to_device || reads_device != from_device)
    return Fail(cudaErrorInvalidValue, "a copy leaves the memory that its kind says");
  switch (kind) {
    case cudaMemcpyHostToDevice:
      ++All().to_device;
      break;
    case cudaMemcpyDeviceToHost:
      ++All().to_host;
      std::memset(to, 0, bytes);
      break;
    case cudaMemcpyDeviceToDevice:
      ++All().within;
      ++thread_work;
      break;
    default:
      std::memmove(to, from, bytes);
  }
  return cudaSuccess;
}

cudaError_t Fill(const void* memory, size_t bytes) {
  const std::lock_guard lock(All().mutex);
  if (bytes > 0 && !All().OnDevice(memory, bytes))
    return Fail(cudaErrorInvalidValue, "a fill leaves device memory");
  ++All().within;
  ++thread_work;
  return cudaSuccess;
}

cudaError_t HostWaits() {
  ++All().synchronizations;
  return cudaSuccess;
}

struct CallConfiguration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};
thread_local CallConfiguration configuration;

}  // namespace

extern "C" {

void RecordingCudaRead(RecordingCudaCounts* counts) {
  const std::lock_guard lock(All().mutex);
  int64_t reserved = 0;
  for (const int64_t bytes : All().reserved) reserved += bytes;
  *counts = {All().launches,         All().to_host, All().to_device,    All().within,
             All().synchronizations, All().events,  All().stream_waits, reserved};
}

int64_t RecordingCudaThreadWork() { return thread_work; }

void RecordingCudaKernels(void (*each)(void*, const char*, int64_t), void* context) {
  const std::lock_guard lock(All().mutex);
  for (const auto& [name, count] : All().kernel_launches) each(context, name.c_str(), count);
}

void RecordingCudaLaunch(const char* kernel) {
  ++All().launches;
  ++thread_work;
  const std::lock_guard lock(All().mutex);
  ++All().kernel_launches[kernel];
}

int RecordingCudaTake(int gpu, int64_t bytes) {
  const std::lock_guard lock(All().mutex);
  int64_t& reserved = All().reserved[static_cast<size_t>(gpu)];
  if (reserved + bytes > ClaimedGpu().memory_bytes) return 0;
  reserved += bytes;
  return 1;
}

void RecordingCudaMap(const void* begin, int64_t bytes) {
  const std::lock_guard lock(All().mutex);
  All().mapped.Add(begin, static_cast<size_t>(bytes));
}

void RecordingCudaUnmap(const void* begin) {
  const std::lock_guard lock(All().mutex);
  All().mapped.Remove(begin);
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_gpu;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= ClaimedGpus()) return cudaErrorInvalidDevice;
  current_gpu = device;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

// Memory.

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const std::lock_guard lock(All().mutex);
  int64_t& reserved = All().reserved[static_cast<size_t>(current_gpu)];
  if (reserved + static_cast<int64_t>(bytes) > ClaimedGpu().memory_bytes)
    return last_error = cudaErrorMemoryAllocation;
  *memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (*memory == MAP_FAILED) return last_error = cudaErrorMemoryAllocation;
  reserved += static_cast<int64_t>(bytes);
  All().device.Add(*memory, bytes);
  All().gpu_of[reinterpret_cast<uintptr_t>(*memory)] = current_gpu;
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  const std::lock_guard lock(All().mutex);
  const size_t bytes = All().device.Remove(memory);
  if (bytes == 0) return Fail(cudaErrorInvalidValue, "freed memory that was not allocated");
  const auto gpu = All().gpu_of.find(reinterpret_cast<uintptr_t>(memory));
  All().reserved[static_cast<size_t>(gpu->second)] -= static_cast<int64_t>(bytes);
  All().gpu_of.erase(gpu);
  munmap(memory, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* unused, size_t* total) {
  const std::lock_guard lock(All().mutex);
  *total = static_cast<size_t>(ClaimedGpu().memory_bytes);
  *unused = *total - static_cast<size_t>(All().reserved[static_cast<size_t>(current_gpu)]);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  if (posix_memalign(memory, 4096, bytes) != 0) return last_error = cudaErrorMemoryAllocation;
  const std::lock_guard lock(All().mutex);
  All().pinned.Add(*memory, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  {
    const std::lock_guard lock(All().mutex);
    All().pinned.Remove(memory);
  }
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const std::lock_guard lock(All().mutex);
  std::memset(attributes, 0, sizeof *attributes);
  attributes->type = cudaMemoryTypeUnregistered;
  if (All().OnDevice(pointer, 1)) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->devicePointer = const_cast<void*>(pointer);
  } else if (All().pinned.Holds(pointer, 1)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->hostPointer = attributes->devicePointer = const_cast<void*>(pointer);
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  HostWaits();
  return Copy(to, from, bytes, kind);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
  return Copy(to, from, bytes, kind);
}

cudaError_t cudaMemset(void* memory, int, size_t bytes) { return Fill(memory, bytes); }

cudaError_t cudaMemsetAsync(void* memory, int, size_t bytes, cudaStream_t) {
  return Fill(memory, bytes);
}

// Streams and events: every event has passed at once.

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = NewHandle<cudaStream_t>();
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return cudaStreamCreate(stream);
}

cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status,
                                     unsigned long long*, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, size_t*) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  ++All().stream_waits;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = NewHandle<cudaEvent_t>();
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  const std::lock_guard lock(All().mutex);
  All().recorded[event] = ++All().events;
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}

// A millisecond from one record of any event to the next.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const std::lock_guard lock(All().mutex);
  *milliseconds = static_cast<float>(All().recorded[to] - All().recorded[from]);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() { return HostWaits(); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return HostWaits(); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return HostWaits(); }

// Kernels: the compiler's registration, and launches.

void** __cudaRegisterFatBinary(void* binary) { return new void*(binary); }

void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  const std::lock_guard lock(All().mutex);
  All().names.emplace(function, name);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     cudaStream_t stream) {
  configuration = {grid, block, shared_bytes, stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                       void* stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared_bytes = configuration.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  return Launch(kernel);
}

cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void**, size_t, cudaStream_t) {
  return Launch(function);
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3, dim3, void**, size_t,
                                        cudaStream_t) {
  return Launch(function);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* function, void**) {
  return Launch(function);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->binaryVersion = attributes->ptxVersion = 10 * ClaimedGpu().major + ClaimedGpu().minor;
  attributes->numRegs = 64;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 1;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                   size_t, unsigned) {
  *blocks = 1;
  return cudaSuccess;
}

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  *address = const_cast<void*>(symbol);
  return cudaSuccess;
}
}
