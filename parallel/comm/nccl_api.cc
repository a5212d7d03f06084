#include "parallel/comm/nccl_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "configs/base/error.h"

namespace equipoise {
namespace {

class Library {
 public:
  explicit Library(const std::vector<std::string>& names) : opened_(OpenLibrary(names)) {}

  template <class Signature>
  void Find(const char* symbol, std::function<Signature>& function) const {
    void* found = dlsym(opened_.handle, symbol);
    if (found == nullptr) {
      throw ConfigError(
          fmt::format("parallel.nccl: {} has no {}; use another version", opened_.name, symbol));
    }
    function = reinterpret_cast<Signature*>(found);
  }

 private:
  OpenedLibrary opened_;
};

}  // namespace

void CudaApi::Check(int error, const char* call) const {
  if (error == 0) return;
  throw RunError(
      fmt::format("{}: {} (CUDA error {}, device {})", call, error_text(error), error, device));
}

void NcclApi::Check(int error, const char* call) const {
  if (error == 0) return;
  // NCCL ignores the communicator, which another thread may have aborted.
  const char* detail = last_error(nullptr);
  std::string text = fmt::format("{}: {} (NCCL error {})", call, error_text(error), error);
  if (detail != nullptr && detail[0] != '\0') text += fmt::format(": {}", detail);
  throw RunError(text);
}

OpenedLibrary OpenLibrary(const std::vector<std::string>& names) {
  std::string reason;
  for (const int only_loaded : {RTLD_NOLOAD, 0}) {
    for (const std::string& name : names) {
      void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | only_loaded);
      if (handle != nullptr) return {name, handle};
      if (const char* error = dlerror(); error != nullptr) reason = error;
    }
  }
  throw ConfigError(fmt::format(
      "parallel.nccl: {}; give the path of NCCL's library, on a machine with CUDA", reason));
}

CudaApi LoadCudaApi() {
  const Library library({"libcudart.so.13", "libcudart.so.12", "libcudart.so"});
  CudaApi api;
  library.Find("cudaGetDeviceCount", api.device_count);
  library.Find("cudaDeviceGetPCIBusId", api.device_id);
  library.Find("cudaSetDevice", api.set_device);
  library.Find("cudaStreamCreateWithFlags", api.stream_create);
  library.Find("cudaStreamDestroy", api.stream_destroy);
  library.Find("cudaStreamSynchronize", api.stream_synchronize);
  library.Find("cudaStreamWaitEvent", api.stream_wait_event);
  library.Find("cudaEventCreateWithFlags", api.event_create);
  library.Find("cudaEventDestroy", api.event_destroy);
  library.Find("cudaEventRecord", api.event_record);
  library.Find("cudaEventQuery", api.event_query);
  library.Find("cudaHostAlloc", api.host_alloc);
  library.Find("cudaFreeHost", api.host_free);
  library.Find("cudaMemcpyAsync", api.copy);
  library.Find("cudaGetErrorString", api.error_text);
  return api;
}

NcclApi LoadNcclApi(const std::string& path) {
  const Library library({path.empty() ? std::string("libnccl.so.2") : path});
  NcclApi api;
  api.cuda = LoadCudaApi();
  library.Find("ncclGetVersion", api.version);
  library.Find("ncclGetUniqueId", api.new_id);
  library.Find("ncclCommInitRank", api.init);
  library.Find("ncclCommAbort", api.abort);
  library.Find("ncclCommDestroy", api.destroy);
  library.Find("ncclCommGetAsyncError", api.async_error);
  library.Find("ncclGetLastError", api.last_error);
  library.Find("ncclGetErrorString", api.error_text);
  library.Find("ncclGroupStart", api.group_start);
  library.Find("ncclGroupEnd", api.group_end);
  library.Find("ncclAllReduce", api.all_reduce);
  library.Find("ncclReduceScatter", api.reduce_scatter);
  library.Find("ncclAllGather", api.all_gather);
  library.Find("ncclBroadcast", api.broadcast);
  library.Find("ncclSend", api.send);
  library.Find("ncclRecv", api.receive);
  return api;
}

}  // namespace equipoise
