// The training of whole models on stand-ins of GPUs, one for each rank, beside the same on the CPU.
#include <catch2/catch.hpp>

#include "tests/device/device_cells.h"
#include "tests/device/gpu_stand_in.h"
#include "tests/device/staging_stand_in.h"

namespace equipoise {
namespace {

TEST_CASE("models train on stand-ins of GPUs as on the CPU", "[device]") {
  const testing::CellDevices gpus =
      testing::StagedGpus(testing::kStandInGpus, testing::StagingStandIn);
  const int64_t before = testing::CountsOfStandIn().operations;
  for (const testing::Cell& cell : testing::DeviceCells(/*tensor=*/true)) CheckCell(cell, gpus);
  CHECK(testing::CountsOfStandIn().operations > before);
  CHECK(testing::CountsOfStandIn().flash_attentions > 0);
}

}  // namespace
}  // namespace equipoise
