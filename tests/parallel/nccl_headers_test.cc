// What parallel/comm/nccl_api.h and trainer/device/nvidia_driver.h say of NCCL and CUDA, which are
// opened at run time, beside the libraries' own headers.

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <catch2/catch.hpp>
#include <functional>
#include <type_traits>

#include "parallel/comm/nccl_api.h"
#include "trainer/device/nvidia_driver.h"

namespace equipoise {
namespace {

static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId) && NCCL_UNIQUE_ID_BYTES == 128);
static_assert(NcclApi::kInProgress == ncclInProgress);
static_assert(NcclApi::kSum == ncclSum && NcclApi::kMax == ncclMax && NcclApi::kMin == ncclMin);
static_assert(NcclApi::kUint8 == ncclUint8 && NcclApi::kInt64 == ncclInt64);
static_assert(NcclApi::kFloat16 == ncclFloat16 && NcclApi::kFloat32 == ncclFloat32);
static_assert(NcclApi::kFloat64 == ncclFloat64 && NcclApi::kBfloat16 == ncclBfloat16);
static_assert(CudaApi::kNotReady == cudaErrorNotReady);
static_assert(CudaApi::kNonBlockingStream == cudaStreamNonBlocking);
static_assert(CudaApi::kEventWithoutTiming == cudaEventDisableTiming);
static_assert(CudaApi::kHostToDevice == cudaMemcpyHostToDevice);
static_assert(CudaApi::kDeviceToHost == cudaMemcpyDeviceToHost);
static_assert(NvidiaDriver::kMajorCapability == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(ncclSuccess == 0 && cudaSuccess == 0 && CUDA_SUCCESS == 0);
// The driver's functions as trainer/device/nvidia_driver.cc calls them: device numbers and results
// are ints.
static_assert(std::is_same_v<CUdevice, int> && sizeof(CUresult) == sizeof(int));
static_assert(std::is_same_v<decltype(&cuInit), CUresult (*)(unsigned)>);
static_assert(std::is_same_v<decltype(&cuDeviceGetCount), CUresult (*)(int*)>);
static_assert(std::is_same_v<decltype(&cuDeviceGetName), CUresult (*)(char*, int, CUdevice)>);
static_assert(std::is_same_v<decltype(&cuDeviceTotalMem_v2), CUresult (*)(size_t*, CUdevice)>);
static_assert(std::is_same_v<decltype(&cuDeviceGetAttribute),
                             CUresult (*)(int*, CUdevice_attribute, CUdevice)>);

// Whether two types are passed alike: pointers as pointers, numbers and enums as numbers of the
// same size, structs by their size.
template <class A, class B>
constexpr bool kPassedAlike =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>&& std::is_class_v<A> ==
                                  std::is_class_v<B>&& std::is_floating_point_v<A> ==
                                  std::is_floating_point_v<B>;

template <class Library>
struct Function;

template <class Result, class... Arguments>
struct Function<Result (*)(Arguments...)> {
  template <class Mine, class... MyArguments>
  static constexpr bool CalledAs(const std::function<Mine(MyArguments...)>&) {
    if constexpr (sizeof...(Arguments) != sizeof...(MyArguments)) {
      return false;
    } else {
      return kPassedAlike<Result, Mine> && (kPassedAlike<Arguments, MyArguments> && ...);
    }
  }
};

// Whether a function of the library, given by its type, can be called through one of our signature.
// By its type alone: naming the function itself would need the library at link time.
template <class Library, class Mine>
constexpr bool Matches(const Mine& mine) {
  return Function<Library>::CalledAs(mine);
}

TEST_CASE("functions of CUDA have the signatures by which they are called", "[nccl][cpu]") {
  const CudaApi api;
  CHECK(Matches<decltype(&cudaGetDeviceCount)>(api.device_count));
  CHECK(Matches<decltype(&cudaDeviceGetPCIBusId)>(api.device_id));
  CHECK(Matches<decltype(&cudaSetDevice)>(api.set_device));
  CHECK(Matches<decltype(&cudaStreamCreateWithFlags)>(api.stream_create));
  CHECK(Matches<decltype(&cudaStreamDestroy)>(api.stream_destroy));
  CHECK(Matches<decltype(&cudaStreamSynchronize)>(api.stream_synchronize));
  using WaitEvent = cudaError_t (*)(cudaStream_t, cudaEvent_t, unsigned);
  CHECK(Matches<decltype(WaitEvent(&cudaStreamWaitEvent))>(api.stream_wait_event));
  using CreateEvent = cudaError_t (*)(cudaEvent_t*, unsigned);
  CHECK(Matches<decltype(CreateEvent(&cudaEventCreateWithFlags))>(api.event_create));
  CHECK(Matches<decltype(&cudaEventDestroy)>(api.event_destroy));
  using Record = cudaError_t (*)(cudaEvent_t, cudaStream_t);
  CHECK(Matches<decltype(Record(&cudaEventRecord))>(api.event_record));
  CHECK(Matches<decltype(&cudaEventQuery)>(api.event_query));
  using HostAlloc = cudaError_t (*)(void**, size_t, unsigned);
  CHECK(Matches<decltype(HostAlloc(&cudaHostAlloc))>(api.host_alloc));
  CHECK(Matches<decltype(&cudaFreeHost)>(api.host_free));
  using Copy = cudaError_t (*)(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t);
  CHECK(Matches<decltype(Copy(&cudaMemcpyAsync))>(api.copy));
  CHECK(Matches<decltype(&cudaGetErrorString)>(api.error_text));
}

TEST_CASE("functions of NCCL have the signatures by which they are called", "[nccl][cpu]") {
  const NcclApi api;
  CHECK(Matches<decltype(&ncclGetVersion)>(api.version));
  CHECK(Matches<decltype(&ncclGetUniqueId)>(api.new_id));
  CHECK(Matches<decltype(&ncclCommInitRank)>(api.init));
  CHECK(Matches<decltype(&ncclCommAbort)>(api.abort));
  CHECK(Matches<decltype(&ncclCommDestroy)>(api.destroy));
  CHECK(Matches<decltype(&ncclCommGetAsyncError)>(api.async_error));
  CHECK(Matches<decltype(&ncclGetLastError)>(api.last_error));
  CHECK(Matches<decltype(&ncclGetErrorString)>(api.error_text));
  CHECK(Matches<decltype(&ncclGroupStart)>(api.group_start));
  CHECK(Matches<decltype(&ncclGroupEnd)>(api.group_end));
  CHECK(Matches<decltype(&ncclAllReduce)>(api.all_reduce));
  CHECK(Matches<decltype(&ncclReduceScatter)>(api.reduce_scatter));
  CHECK(Matches<decltype(&ncclAllGather)>(api.all_gather));
  CHECK(Matches<decltype(&ncclBroadcast)>(api.broadcast));
  CHECK(Matches<decltype(&ncclSend)>(api.send));
  CHECK(Matches<decltype(&ncclRecv)>(api.receive));
  CHECK_FALSE(Matches<decltype(&ncclRecv)>(api.broadcast));
}

}  // namespace
}  // namespace equipoise
