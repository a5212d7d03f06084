// The optimizer's state on the host, with the step there, on stand-ins of GPUs: the bits of a state
// on the device, for whole models.
#include <ATen/Parallel.h>

#include <catch2/catch.hpp>

#include "tests/device/device_cells.h"
#include "tests/device/gpu_stand_in.h"
#include "tests/device/staging_stand_in.h"
#include "tests/trainer/scratch_folder.h"

namespace equipoise {
namespace {

using testing::Cell;
using testing::CellResult;

testing::CellDevices Gpus() {
  return testing::StagedGpus(testing::kStandInGpus, testing::StagingStandIn);
}

std::vector<Cell> Cells() {
  std::vector<Cell> cells = testing::DeviceCells(/*tensor=*/true);
  for (const char* precision : {"fp32", "bf16"}) {
    for (const int zero : {2, 3}) {
      Cell cell;
      cell.precision = precision;
      cell.data = 2, cell.zero = zero;
      cells.push_back(cell);
    }
  }
  return cells;
}

TEST_CASE("an offloaded optimizer trains models to the same bits", "[device]") {
  at::set_num_threads(1);
  for (Cell cell : Cells()) {
    INFO(ToString(cell));
    const CellResult on_device = RunCell(cell, Gpus());
    cell.offload = true;
    CHECK(SameBits(RunCell(cell, Gpus()), on_device));
  }
}

TEST_CASE("a run goes on from a checkpoint of one that was offloaded, and back", "[device]") {
  at::set_num_threads(1);
  Cell cell;
  cell.precision = GENERATE("fp32", "bf16");
  cell.data = 2;
  cell.zero = GENERATE(1, 3);
  cell.steps = 2;
  INFO(ToString(cell));
  const auto second_half = [&](bool first_offloaded, bool then_offloaded) {
    const ScratchFolder folder;
    Cell first = cell, then = cell;
    first.offload = first_offloaded;
    then.offload = then_offloaded;
    RunCell(first, Gpus(), {.load = "", .save = folder.path()});
    return RunCell(then, Gpus(), {.load = folder.path(), .save = ""});
  };
  const CellResult without = second_half(false, false);
  CHECK(SameBits(second_half(true, false), without));
  CHECK(SameBits(second_half(false, true), without));
  CHECK(SameBits(second_half(true, true), without));
}

}  // namespace
}  // namespace equipoise
