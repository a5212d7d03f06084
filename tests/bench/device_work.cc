#include "tests/bench/device_work.h"

#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>
#include <dlfcn.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "tests/recording_cuda/recording.h"

namespace equipoise::testing {
namespace {

template <class Function>
Function* Find(const char* name) {
  auto* found = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  if (found == nullptr) {
    throw ConfigError(
        "this program counts a GPU's work under the recording CUDA alone; start it with "
        "scripts/bench/gpu_count");
  }
  return found;
}

int64_t ThreadWork() {
  static auto* const function = Find<decltype(RecordingCudaThreadWork)>("RecordingCudaThreadWork");
  return function();
}

// An operation that runs on a thread.
struct Running {
  int64_t before;      // the thread's work when it began
  int64_t inside = 0;  // of that, what operations inside it have done
  int64_t input_bytes = 0;
};
thread_local std::vector<Running> running;

std::mutex mutex;
std::map<std::string, DeviceWork> by_operation;  // guarded by `mutex`

// Bytes of a tensor, elements that a stride of 0 repeats counted once.
int64_t BytesOf(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return 0;
  int64_t elements = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d)
    elements *= tensor.stride(d) == 0 && tensor.size(d) > 1 ? 1 : tensor.size(d);
  return elements * static_cast<int64_t>(tensor.element_size());
}

int64_t BytesOf(const c10::IValue& value) {
  if (value.isTensor()) return BytesOf(value.toTensor());
  int64_t bytes = 0;
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) bytes += BytesOf(tensor);
  }
  return bytes;
}

// Whether the operation's result is one of its arguments, which it does not read.
bool OverwritesArgument(const at::RecordFunction& function) {
  const std::string name = function.name();
  if (name == "aten::copy_" || name == "aten::zero_" || name == "aten::fill_") return true;
  const auto operation = function.operator_name();
  return operation && operation->overload_name.ends_with("out");
}

// Of the arguments that an operation without results writes, such as a fused optimizer's.
int64_t UnreturnedBytes(const at::RecordFunction& function) {
  const auto schema = function.operator_schema();
  if (!schema || !schema->returns().empty()) return 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < function.inputs().size(); ++i) {
    const c10::AliasInfo* alias = schema->arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) bytes += BytesOf(function.inputs()[i]);
  }
  return bytes;
}

// Inputs are there only now.
std::unique_ptr<at::ObserverContext> Begin(const at::RecordFunction& function) {
  Running operation = {ThreadWork()};
  for (const c10::IValue& value : function.inputs()) operation.input_bytes += BytesOf(value);
  operation.input_bytes += UnreturnedBytes(function);
  running.push_back(operation);
  return nullptr;
}

void End(const at::RecordFunction& function, at::ObserverContext*) {
  if (running.empty()) return;
  const Running operation = running.back();
  running.pop_back();
  const int64_t all = ThreadWork() - operation.before;
  if (!running.empty()) running.back().inside += all;
  if (all == operation.inside) return;
  DeviceWork work;
  work.launches = all - operation.inside;
  work.bytes = operation.input_bytes;
  if (!OverwritesArgument(function)) {
    for (const c10::IValue& value : function.outputs()) work.bytes += BytesOf(value);
  }
  const std::lock_guard lock(mutex);
  by_operation[function.name()] += work;
}

DeviceWork Read() {
  static auto* const function = Find<decltype(RecordingCudaRead)>("RecordingCudaRead");
  RecordingCudaCounts counts = {};
  function(&counts);
  return {counts.launches,       counts.copies_within,    counts.copies_to_device,
          counts.copies_to_host, counts.synchronizations, 0};
}

DeviceWork at_start;

}  // namespace

DeviceWork& DeviceWork::operator+=(const DeviceWork& other) {
  launches += other.launches;
  copies += other.copies;
  to_device += other.to_device;
  to_host += other.to_host;
  waits += other.waits;
  bytes += other.bytes;
  return *this;
}

DeviceWork DeviceWork::operator-(const DeviceWork& other) const {
  return {launches - other.launches, copies - other.copies, to_device - other.to_device,
          to_host - other.to_host,   waits - other.waits,   bytes - other.bytes};
}

DeviceWorkMeter::DeviceWorkMeter() {
  at_start = Read();
  {
    const std::lock_guard lock(mutex);
    by_operation.clear();
  }
  handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&Begin, &End)
                                      .needsInputs(true)
                                      .needsOutputs(true)
                                      .scopes({at::RecordScope::FUNCTION}));
}

DeviceWorkMeter::~DeviceWorkMeter() { at::removeCallback(handle_); }

DeviceWork DeviceWorkMeter::Total() const {
  DeviceWork total = Read() - at_start;
  for (const auto& [name, work] : ByOperation()) total.bytes += work.bytes;
  return total;
}

std::map<std::string, DeviceWork> DeviceWorkMeter::ByOperation() const {
  const std::lock_guard lock(mutex);
  return by_operation;
}

}  // namespace equipoise::testing
