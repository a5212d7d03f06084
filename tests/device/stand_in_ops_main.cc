// Trains small models on the stand-in of GPUs and prints the operations that were asked for there,
// and those that ran, one a line: "aten::add.Tensor".
#include <ATen/Parallel.h>
#include <ATen/record_function.h>

#include <cstdio>
#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "tests/device/nccl_gpus.h"
#include "trainer/device/open_kernels.h"

namespace equipoise::testing {
namespace {

std::mutex mutex;
std::set<std::string> names;

// Hears of every call of an operation, by any thread.
std::unique_ptr<at::ObserverContext> Note(const at::RecordFunction& call) {
  for (const c10::IValue& input : call.inputs()) {
    if (!input.isTensor() || !input.toTensor().defined() || !input.toTensor().is_cuda()) continue;
    if (const auto name = call.operator_name()) {
      const std::lock_guard lock(mutex);
      names.insert(c10::toString(*name));
    }
    break;
  }
  return nullptr;
}

void Train(const std::function<void(Cell&)>& change) {
  for (const char* precision : {"fp32", "bf16"}) {
    Cell cell;
    cell.precision = precision;
    cell.steps = 1;
    change(cell);
    NcclGpus gpus(cell.ranks());
    RunCell(cell, gpus.devices());
  }
}

void TrainAll() {
  for (const char* model :
       {"internvl-qwen2", "internvl-llama", "internvl-qwen3", "internvl-internlm2", "qwen2-tied"}) {
    Train([=](Cell& cell) { cell.model = model; });
  }
  Train([](Cell& cell) { cell.freeze = {"vision"}, cell.recompute = "random 3"; });
  ChooseAttention("cudnn_tiles");
  Train([](Cell&) {});
  ChooseAttention("flash");
  Train([](Cell& cell) { cell.tensor = 2; });
  Train([](Cell& cell) { cell.data = 2, cell.zero = 1; });
  Train([](Cell& cell) { cell.pipeline = 2, cell.schedule = "zb_v"; });
}

}  // namespace
}  // namespace equipoise::testing

int main() {
  namespace testing = equipoise::testing;
  at::set_num_threads(1);
  at::addGlobalCallback(at::RecordFunctionCallback(testing::Note)
                            .needsInputs(true)
                            .scopes({at::RecordScope::FUNCTION}));
  testing::TrainAll();
  for (const std::string& name : testing::OperationsOfStandIn()) testing::names.insert(name);
  for (const std::string& name : testing::names) std::printf("%s\n", name.c_str());
  return 0;
}
