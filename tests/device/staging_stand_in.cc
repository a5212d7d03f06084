#include "tests/device/staging_stand_in.h"

#include <cstdlib>
#include <cstring>

#include "tests/device/gpu_stand_in.h"

namespace equipoise::testing {

CudaApi StagingStandIn(int /*gpu*/) {
  CudaApi api;
  api.set_device = [](int) { return 0; };
  api.stream_synchronize = [](CudaApi::Stream) { return 0; };
  api.host_alloc = [](void** data, size_t bytes, unsigned) {
    *data = std::malloc(bytes);
    return 0;
  };
  api.host_free = [](void* data) {
    std::free(data);
    return 0;
  };
  api.copy = [](void* to, const void* from, size_t bytes, int kind, CudaApi::Stream) {
    const bool up = kind == CudaApi::kHostToDevice;
    std::memcpy(up ? HostAddress(to) : to, up ? from : HostAddress(from), bytes);
    return 0;
  };
  return api;
}

}  // namespace equipoise::testing
