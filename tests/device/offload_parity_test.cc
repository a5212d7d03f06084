// The optimizer's state on the host, with the step there, and with it gradients and parameters, on
// stand-ins of GPUs: the bits of a state on the device, for whole models.
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
    cell.offloaded = ShardedState::kOptimizer;
    CHECK(SameBits(RunCell(cell, Gpus()), on_device));
  }
}

TEST_CASE("gradients and parameters in host memory train models to the same bits", "[device]") {
  at::set_num_threads(1);
  Cell cell;
  cell.precision = GENERATE("fp32", "bf16");
  cell.data = 2;
  cell.zero = GENERATE(2, 3);
  const auto check = [&] {
    INFO(ToString(cell));
    cell.offloaded = ShardedState::kNone;
    const CellResult on_device = RunCell(cell, Gpus());
    cell.offloaded = ShardedState::kGradients;
    CHECK(SameBits(RunCell(cell, Gpus()), on_device));
    cell.offloaded = ShardedState::kParameters;
    if (cell.zero == 3) CHECK(SameBits(RunCell(cell, Gpus()), on_device));
  };
  check();
  cell.recompute = "random 1";
  for (const char* model : {"internvl-qwen2+lora", "qwen2-tied", "qwen2_5_vl"}) {
    cell.model = model;
    check();
  }
  cell.model = "internvl-qwen2";
  cell.freeze = {"vision"};
  check();
  cell.freeze.clear();
  cell.pipeline = 2, cell.schedule = "zb_h1";
  check();
  cell.pipeline = 1, cell.tensor = 2;
  check();
  cell.tensor = 1, cell.data = 4, cell.zero_ranks = 2;
  check();
}

TEST_CASE("one rank has gradients and parameters in host memory layer by layer", "[device]") {
  at::set_num_threads(1);
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "internvl-llama", "qwen2-tied", "internvl-qwen2+lora");
  cell.precision = GENERATE("fp32", "bf16", "fp16");
  // One micro-batch: there is one order of its sums.
  cell.micro_batches = GENERATE(1, 4);
  const CellResult whole = RunCell(cell, Gpus());
  for (const ShardedState state : {ShardedState::kGradients, ShardedState::kParameters}) {
    cell.offloaded = state;
    for (int zero = ZeroStage(state); zero <= 3; ++zero) {
      cell.zero = zero;
      INFO(ToString(cell));
      const CellResult offloaded = RunCell(cell, Gpus());
      if (cell.micro_batches == 1) {
        CHECK(SameBits(offloaded, whole));
      } else {
        CHECK(Compare(offloaded, whole).Within(BoundsOf(cell)));
      }
    }
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
  const ShardedState none = ShardedState::kNone;
  const ShardedState all = cell.zero == 3 ? ShardedState::kParameters : ShardedState::kOptimizer;
  const auto second_half = [&](ShardedState first_offloaded, ShardedState then_offloaded) {
    const ScratchFolder folder;
    Cell first = cell, then = cell;
    first.offloaded = first_offloaded;
    then.offloaded = then_offloaded;
    RunCell(first, Gpus(), {.load = "", .save = folder.path()});
    return RunCell(then, Gpus(), {.load = folder.path(), .save = ""});
  };
  const CellResult without = second_half(none, none);
  CHECK(SameBits(second_half(all, none), without));
  CHECK(SameBits(second_half(none, all), without));
  CHECK(SameBits(second_half(all, all), without));
}

}  // namespace
}  // namespace equipoise
