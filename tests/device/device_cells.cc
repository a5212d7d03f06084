#include "tests/device/device_cells.h"

#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <utility>

#include "parallel/comm/group_communicator.h"
#include "parallel/comm/staged_communicator.h"

namespace equipoise::testing {
namespace {

at::Device Gpu(int rank, int gpus) {
  return {at::kCUDA, static_cast<c10::DeviceIndex>(rank % gpus)};
}

}  // namespace

CellDevices StagedGpus(int gpus, std::function<CudaApi(int gpu)> cuda) {
  CellDevices devices;
  devices.device = [gpus](int rank) { return Gpu(rank, gpus); };
  devices.wrap = [gpus, cuda = std::move(cuda)](
                     std::unique_ptr<Communicator> world) -> std::unique_ptr<Communicator> {
    const at::Device device = Gpu(world->rank(), gpus);
    c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device);
    auto* group = dynamic_cast<GroupCommunicator*>(world.get());
    if (group == nullptr) return world;
    (void)world.release();
    return std::make_unique<StagedCommunicator>(
        std::unique_ptr<GroupCommunicator>(group),
        std::make_shared<const CudaApi>(cuda(device.index())), at::kCUDA);
  };
  return devices;
}

std::vector<Cell> DeviceCells(bool tensor) {
  std::vector<Cell> cells;
  for (const char* precision : {"fp32", "bf16"}) {
    const auto add = [&](const std::function<void(Cell&)>& change) {
      Cell cell;
      cell.precision = precision;
      change(cell);
      cells.push_back(cell);
    };
    for (const char* model : {"internvl-qwen2", "internvl-llama", "qwen2-tied"}) {
      add([=](Cell& cell) { cell.model = model; });
    }
    for (const char* recompute : {"random 3", "elementwise", "offload", "full_offload"})
      add([=](Cell& cell) { cell.recompute = recompute; });
    add([](Cell& cell) { cell.freeze = {"vision"}; });
    for (const int zero : {0, 1}) {
      add([=](Cell& cell) { cell.data = 2, cell.zero = zero; });
    }
    for (const char* schedule : {"1f1b", "zb_h1", "zb_v", "pipedream_2bw"}) {
      add([=](Cell& cell) { cell.pipeline = 2, cell.schedule = schedule; });
    }
    add([](Cell& cell) {
      cell.model = "qwen2-tied";
      cell.pipeline = 2;
      cell.schedule = "interleaved";
    });
    for (const char* model : {"internvl-qwen2", "internvl-llama"}) {
      if (tensor) add([=](Cell& cell) { cell.model = model, cell.tensor = 2; });
    }
  }
  // What of it depends on 16 bits being fp16: own kernels, products, masters and sums.
  Cell fp16;
  fp16.precision = "fp16";
  for (const char* model : {"internvl-qwen2", "internvl-llama"}) {
    fp16.model = model;
    cells.push_back(fp16);
  }
  fp16.pipeline = fp16.data = 2;
  fp16.zero = 1;
  cells.push_back(fp16);
  fp16.data = 1;
  fp16.tensor = 2;
  if (tensor) cells.push_back(fp16);
  return cells;
}

void CheckCell(const Cell& cell, const CellDevices& devices, bool other_sums) {
  INFO(ToString(cell));
  at::set_num_threads(1);
  const CellResult cpu = RunCell(cell), gpu = RunCell(cell, devices);
  const CellErrors errors = Compare(gpu, cpu);
  std::printf("cell\t%s\n", Row(cell, errors, SameBits(gpu, cpu)).c_str());
  INFO(ToString(errors));
  CellErrors bounds = BoundsOf(cell, /*other_device=*/true), floor;
  if (other_sums && cell.precision == "fp32") {
    Cell nudged = cell;
    nudged.nudged = true;
    floor = Compare(RunCell(nudged), cpu);
    bounds = AtLeast(bounds, floor, 8);
  } else if (cell.precision != "fp32") {
    // Two runs that round at other places lie at most as far from each other as both do from fp32.
    // How far that is depends on the CPU: with and without instructions for bf16 it differs.
    Cell exact = cell;
    exact.precision = "fp32";
    exact.fp8 = false;
    floor = Compare(cpu, RunCell(exact));
    bounds = AtLeast(bounds, floor, 2);
  }
  INFO("by rounding alone: " << ToString(floor));
  CHECK(errors.Within(bounds));
}

}  // namespace equipoise::testing
