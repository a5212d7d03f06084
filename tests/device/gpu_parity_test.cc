// The training of whole models on the GPUs of this machine beside the same on the CPU.
#include <catch2/catch.hpp>

#include "configs/base/error.h"
#include "parallel/comm/mpi_environment.h"
#include "tests/device/device_cells.h"
#include "tests/skip_case.h"
#include "trainer/device/compute_device.h"
#include "trainer/device/open_kernels.h"

namespace equipoise {
namespace {

TEST_CASE("models train on GPUs as on the CPU", "[device][gpu]") {
  const MpiEnvironment alone;
  try {
    OpenComputeDevice("cuda", alone);
    UseOwnKernels(LoadOwnKernels());
  } catch (const ConfigError& error) {
    return testing::SkipCase(error.what());
  }
  const CudaApi table = LoadCudaApi();
  const auto cuda = [&](int gpu) {
    CudaApi api = table;
    api.device = gpu;
    return api;
  };
  int gpus = 0;
  table.Check(table.device_count(&gpus), "cudaGetDeviceCount");
  const testing::CellDevices devices = testing::StagedGpus(gpus, cuda);
  for (const testing::Cell& cell : testing::DeviceCells(gpus > 1)) {
    CheckCell(cell, devices, /*other_sums=*/true);
  }
  for (const int pipeline : {1, 2}) {
    testing::Cell cell;
    cell.precision = "bf16";
    cell.fp8 = true;
    cell.pipeline = pipeline;
    CheckCell(cell, devices, /*other_sums=*/true);
  }
}

}  // namespace
}  // namespace equipoise
