#include "tests/device/staging_stand_in.h"

#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/device/gpu_stand_in.h"

namespace equipoise::testing {
namespace {

struct CopyToHost {
  void* to;
  const void* from;
  size_t bytes;
};
// Of this thread, which asks for them and waits.
thread_local std::vector<CopyToHost> under_way;

}  // namespace

CudaApi StagingStandIn(int /*gpu*/) {
  CudaApi api;
  api.set_device = [](int) { return 0; };
  api.stream_synchronize = [](CudaApi::Stream) {
    for (const auto& [to, from, bytes] : std::exchange(under_way, {})) std::memcpy(to, from, bytes);
    return 0;
  };
  api.host_alloc = [](void** data, size_t bytes, unsigned) {
    *data = std::malloc(bytes);
    return 0;
  };
  api.host_free = [](void* data) {
    std::free(data);
    return 0;
  };
  api.copy = [](void* to, const void* from, size_t bytes, int kind, CudaApi::Stream) {
    if (kind == CudaApi::kHostToDevice) {
      std::memcpy(HostAddress(to), from, bytes);
    } else {
      under_way.push_back({to, HostAddress(from), bytes});
    }
    return 0;
  };
  return api;
}

}  // namespace equipoise::testing
