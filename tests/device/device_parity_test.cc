// The training of whole models on stand-ins of GPUs, one for each rank, beside the same on the CPU.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>

#include "tests/device/device_cells.h"
#include "tests/device/gpu_stand_in.h"

namespace equipoise {
namespace {

// CUDA's functions that staging calls, for memory of the stand-in.
CudaApi StagingApi(int /*gpu*/) {
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
    std::memcpy(up ? testing::HostAddress(to) : to, up ? from : testing::HostAddress(from), bytes);
    return 0;
  };
  return api;
}

TEST_CASE("models train on stand-ins of GPUs as on the CPU", "[device]") {
  const testing::CellDevices gpus = testing::StagedGpus(testing::kStandInGpus, StagingApi);
  const int64_t before = testing::CountsOfStandIn().operations;
  for (const testing::Cell& cell : testing::DeviceCells(/*tensor=*/true)) CheckCell(cell, gpus);
  CHECK(testing::CountsOfStandIn().operations > before);
  CHECK(testing::CountsOfStandIn().flash_attentions > 0);
}

}  // namespace
}  // namespace equipoise
