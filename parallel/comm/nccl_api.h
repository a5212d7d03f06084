#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace equipoise {

// The functions of the CUDA runtime that the backends call, with C types: 0 is success, handles are
// opaque. Nothing links CUDA or needs its headers: the table is filled by dlopen when a GPU is
// used, or by a test's stand-in. `nccl_headers_test` checks it, and that of NCCL, against the
// headers.
struct CudaApi {
  using Stream = void*;
  using Event = void*;
  static constexpr int kNotReady = 600;
  static constexpr unsigned kNonBlockingStream = 1;
  static constexpr unsigned kEventWithoutTiming = 2;
  static constexpr int kHostToDevice = 1, kDeviceToHost = 2;

  int device = 0;  // this rank's
  // The compute stream of the calling thread (parallel/streams.h); not set: the default stream.
  std::function<Stream()> current_stream;
  Stream compute_stream() const { return current_stream ? current_stream() : nullptr; }
  std::function<int(int* count)> device_count;
  std::function<int(char* id, int length, int device)> device_id;  // "0000:4e:00.0"
  std::function<int(int device)> set_device;
  std::function<int(Stream*, unsigned flags)> stream_create;
  std::function<int(Stream)> stream_destroy;
  std::function<int(Stream)> stream_synchronize;
  std::function<int(Stream, Event, unsigned flags)> stream_wait_event;
  std::function<int(Event*, unsigned flags)> event_create;
  std::function<int(Event)> event_destroy;
  std::function<int(Event, Stream)> event_record;
  std::function<int(Event)> event_query;
  std::function<int(void**, size_t bytes, unsigned flags)> host_alloc;
  std::function<int(void*)> host_free;
  std::function<int(void* to, const void* from, size_t bytes, int kind, Stream)> copy;
  std::function<const char*(int error)> error_text;

  // Throws RunError with CUDA's text when `error` is not 0; `call` names the CUDA function.
  void Check(int error, const char* call) const;
};

struct NcclUniqueId {
  char bytes[128];
};

// The functions of NCCL that the backend calls, with C types too.
struct NcclApi {
  using Comm = void*;
  using Stream = CudaApi::Stream;
  static constexpr int kInProgress = 7;
  static constexpr int kSum = 0, kMax = 2, kMin = 3;
  static constexpr int kUint8 = 1, kInt64 = 4, kFloat16 = 6, kFloat32 = 7, kFloat64 = 8,
                       kBfloat16 = 9;

  CudaApi cuda;
  std::function<int(int* version)> version;  // 22809 is 2.28.9
  std::function<int(NcclUniqueId*)> new_id;
  std::function<int(Comm*, int ranks, NcclUniqueId, int rank)> init;
  std::function<int(Comm)> abort, destroy;
  std::function<int(Comm, int* error)> async_error;
  std::function<const char*(Comm)> last_error;
  std::function<const char*(int error)> error_text;
  std::function<int()> group_start, group_end;
  std::function<int(const void*in, void*out, size_t n, int type, int op, Comm, Stream)> all_reduce,
      reduce_scatter;  // n elements of `out`
  std::function<int(const void* in, void* out, size_t n, int type, Comm, Stream)> all_gather;
  std::function<int(const void* in, void* out, size_t n, int type, int root, Comm, Stream)>
      broadcast;
  std::function<int(const void* in, size_t n, int type, int peer, Comm, Stream)> send;
  std::function<int(void* out, size_t n, int type, int peer, Comm, Stream)> receive;

  // As CudaApi::Check, with NCCL's last error.
  void Check(int error, const char* call) const;
};

// Opens the first of the libraries that the process has loaded already, as two runtimes of CUDA
// would each have streams of their own; else the first that there is. Throws ConfigError.
struct OpenedLibrary {
  std::string name;
  void* handle;  // of dlopen; never closed
};
OpenedLibrary OpenLibrary(const std::vector<std::string>& names);

// Opens the libraries, which stay open for the life of the program. `library` of NCCL: a path, or
// empty for the system's libnccl.so.2. Throws ConfigError that names what is missing.
CudaApi LoadCudaApi();
NcclApi LoadNcclApi(const std::string& library);

}  // namespace equipoise
