#include "tests/device/gpu_stand_in.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/library.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "tests/device/cudnn_stand_in.h"
#include "tests/device/flash_stand_in.h"
#include "tests/device/fused_stand_in.h"
#include "tests/device/late_copies.h"
#include "tests/device/stand_in_memory.h"
#include "tests/device/stand_in_streams.h"

namespace equipoise::testing {
namespace {

// Added to every address: no process may touch memory there.
constexpr uintptr_t kShift = uintptr_t{1} << 62;

std::atomic<int64_t> operations{0}, reads{0};
std::atomic<MemoryObserver*> observer{nullptr};
void* Shifted(void* p) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that is none is what this is for
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(p) + kShift);
}

// Counts as CUDA's caching allocator does.
class GpuAllocator final : public c10::DeviceAllocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    const at::Device device(at::kCUDA, CurrentGpu());
    if (bytes == 0) return {nullptr, nullptr, &Free, device};
    auto block = std::make_unique<Block>(Block{bytes,
                                               CurrentGpu(),
                                               c10::GetCPUAllocator()->allocate(bytes),
                                               CurrentHandle(CurrentGpu()),
                                               {}});
    Add(block->gpu, static_cast<int64_t>(bytes));
    void* data = Shifted(block->host.get());
    const auto begin = reinterpret_cast<uintptr_t>(data);
    if (Observer() != nullptr)
      Observer()->Taken(block->gpu, block->stream, {begin, begin + bytes, true});
    return {data, block.release(), &Free, device};
  }
  at::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(HostAddress(to), HostAddress(from), bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const at::DataPtr& data, c10::Stream stream) override {
    auto* block = static_cast<Block*>(data.get_context());
    if (block == nullptr) return;
    const std::lock_guard lock(mutex);
    block->others.push_back(HandleOf(stream));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex gpu) override {
    const std::lock_guard lock(mutex);
    return stats[gpu];
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex gpu) override {
    const std::lock_guard lock(mutex);
    Bytes(gpu).peak = Bytes(gpu).current;
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override {
    return {size_t{1} << 30, size_t{1} << 32};
  }

 private:
  struct Block {
    size_t bytes;
    c10::DeviceIndex gpu;
    at::DataPtr host;
    void* stream;  // that took it
    std::vector<void*> others;
  };
  static c10::CachingAllocator::Stat& Bytes(c10::DeviceIndex gpu) {
    return stats[gpu].allocated_bytes[0];
  }
  static void Add(c10::DeviceIndex gpu, int64_t bytes) {
    const std::lock_guard lock(mutex);
    auto& stat = Bytes(gpu);
    stat.current += bytes;
    stat.peak = std::max(stat.peak, stat.current);
  }
  static void Free(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    if (block == nullptr) return;
    const auto begin = reinterpret_cast<uintptr_t>(Shifted(block->host.get()));
    const MemoryUse all = {begin, begin + block->bytes, true};
    if (Observer() != nullptr) Observer()->Freed(block->gpu, block->stream, all, block->others);
    Add(block->gpu, -static_cast<int64_t>(block->bytes));
  }

  static inline std::mutex mutex;
  static inline std::map<c10::DeviceIndex, c10::CachingDeviceAllocator::DeviceStats> stats;
};

GpuAllocator* Allocator() {
  // Tensors are freed until the very end.
  static GpuAllocator* allocator = std::make_unique<GpuAllocator>().release();
  return allocator;
}

class PinnedAllocator final : public at::Allocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    auto host = std::make_unique<at::DataPtr>(c10::GetCPUAllocator()->allocate(bytes));
    void* data = host->get();
    const std::lock_guard lock(mutex);
    pinned.insert(data);
    return {data, host.release(), &Free, at::Device(at::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  static bool IsPinned(const void* data) {
    const std::lock_guard lock(mutex);
    return pinned.count(data) > 0;
  }

 private:
  static void Free(void* context) {
    const std::unique_ptr<at::DataPtr> host(static_cast<at::DataPtr*>(context));
    const std::lock_guard lock(mutex);
    pinned.erase(host->get());
  }
  static inline std::mutex mutex;
  static inline std::set<const void*> pinned;
};

// What ran, by name, and for the observer: with which memory.
class Uses {
 public:
  explicit Uses(std::string operation) : operation_(std::move(operation)) {
    ++operations;
    const std::lock_guard lock(mutex);
    names.insert(operation_);
  }

  void Add(const at::Tensor& tensor, bool write) {
    if (!tensor.defined() || !tensor.is_cuda() || tensor.numel() == 0) return;
    gpu_ = tensor.device().index();
    int64_t last = 0;
    for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
    const auto begin = reinterpret_cast<uintptr_t>(tensor.data_ptr());
    uses_.push_back({begin, begin + static_cast<size_t>(last + 1) * tensor.itemsize(), write});
  }
  void Report(bool read = false, bool host_waits = false) const {
    if (uses_.empty()) return;
    if (read) ++reads;
    if (Observer() != nullptr) Observer()->Used(gpu_, CurrentHandle(gpu_), operation_, uses_);
    if (host_waits) WaitOnHost(gpu_, CurrentHandle(gpu_), operation_);
  }

  static std::vector<std::string> Names() {
    const std::lock_guard lock(mutex);
    return {names.begin(), names.end()};
  }

 private:
  std::string operation_;
  int gpu_ = 0;
  std::vector<MemoryUse> uses_;

  static inline std::mutex mutex;
  static inline std::set<std::string> names;
};

// Whether CUDA's kernel makes the host wait: for a number, or for the size of its result.
bool HostWaitsFor(const std::string& name) {
  static const std::set<std::string> kNames = {"aten::_local_scalar_dense",
                                               "aten::nonzero",
                                               "aten::masked_select",
                                               "aten::equal",
                                               "aten::_unique2",
                                               "aten::bincount"};
  return kNames.count(name) > 0;
}

// A tensor of the host over the same memory.
at::Tensor OnHost(const at::Tensor& tensor) {
  const auto options = at::TensorOptions(at::kCPU).dtype(tensor.scalar_type());
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (tensor.numel() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  return at::from_blob(HostAddress(tensor.data_ptr()), tensor.sizes(), tensor.strides(), options);
}

at::Tensor EmptyOnGpu(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype) {
  return at::detail::empty_strided_generic(sizes, strides, Allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA), dtype);
}

// One call of an operation: its tensors on the host, and which they were.
class HostCall {
 public:
  explicit HostCall(const c10::OperatorHandle& op)
      : op_(op), uses_(c10::toString(op.operator_name())) {}

  c10::IValue Argument(size_t i, const c10::IValue& value) {
    const c10::AliasInfo* alias = op_.schema().arguments()[i].alias_info();
    const bool write = alias != nullptr && alias->isWrite();
    if (value.isTensor()) return TensorArgument(value.toTensor(), write);
    if (value.isTensorList()) {
      std::vector<at::Tensor> tensors;
      for (const at::Tensor& t : value.toTensorVector()) {
        tensors.push_back(TensorArgument(t, write));
      }
      return tensors;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector()) {
        tensors.push_back(t ? std::optional(TensorArgument(*t, write)) : std::nullopt);
      }
      return tensors;
    }
    return value.isDevice() ? c10::IValue(at::Device(at::kCPU)) : value;
  }

  c10::IValue Result(const c10::IValue& value) {
    if (value.isTensor()) return TensorResult(value.toTensor());
    if (!value.isTensorList()) return value;
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& t : value.toTensorVector()) tensors.push_back(TensorResult(t));
    return tensors;
  }

  // `out` tensors that came empty and were given their size.
  void TakeResized() {
    for (const auto& [impl, pair] : tensors_) {
      const auto& [host, gpu] = pair;
      if (host.sizes() == gpu.sizes()) continue;
      TORCH_CHECK(gpu.numel() == 0, Name(), " resized a tensor");
      const at::Tensor larger = EmptyOnGpu(host.sizes(), host.strides(), host.scalar_type());
      OnHost(larger).copy_(host);
      gpu.unsafeGetTensorImpl()->set_storage_keep_dtype(larger.storage());
      gpu.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides());
      uses_.Add(gpu, /*write=*/true);
    }
  }

  void Report() const {
    const bool read = HostWaitsFor(Name());
    uses_.Report(read, /*host_waits=*/read);
  }

 private:
  const std::string& Name() const { return op_.schema().name(); }

  at::Tensor TensorArgument(const at::Tensor& tensor, bool write) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_cuda()) {
      TORCH_CHECK(tensor.dim() == 0 && !write && op_.hasTag(at::Tag::pointwise), Name(),
                  ": expected all tensors on one device, found cpu");
      return tensor;
    }
    uses_.Add(tensor, write);
    TORCH_CHECK(!gpu_ || *gpu_ == tensor.device().index(), Name(), ": tensors of two GPUs");
    gpu_ = tensor.device().index();
    at::Tensor host = OnHost(tensor);
    tensors_[host.unsafeGetTensorImpl()] = {host, tensor};
    return host;
  }

  at::Tensor TensorResult(const at::Tensor& host) {
    if (!host.defined()) return host;
    const auto found = tensors_.find(host.unsafeGetTensorImpl());
    if (found != tensors_.end()) return found->second.second;
    for (const auto& [impl, pair] : tensors_) {
      TORCH_CHECK(host.numel() == 0 || host.storage().data() != pair.first.storage().data(), Name(),
                  " is a view and has no kernel of its own");
    }
    CurrentGpu() = gpu_.value_or(CurrentGpu());
    at::Tensor result = EmptyOnGpu(host.sizes(), host.strides(), host.scalar_type());
    OnHost(result).copy_(host);
    uses_.Add(result, /*write=*/true);
    return result;
  }

  const c10::OperatorHandle& op_;
  Uses uses_;
  std::optional<c10::DeviceIndex> gpu_;
  std::map<at::TensorImpl*, std::pair<at::Tensor, at::Tensor>> tensors_;  // host's, GPU's
};

at::Tensor Empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  if (device && device->has_index()) CurrentGpu() = device->index();
  return at::detail::empty_generic(size, Allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   dtype.value_or(at::kFloat), format);
}

at::Tensor EmptyStrided(c10::IntArrayRef size, c10::IntArrayRef stride,
                        std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                        std::optional<at::Device> device, std::optional<bool>) {
  if (device && device->has_index()) CurrentGpu() = device->index();
  return EmptyOnGpu(size, stride, dtype.value_or(at::kFloat));
}

at::Tensor& Copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  TORCH_CHECK(!(from.is_cpu() && non_blocking) || from.numel() == 0 || from.is_pinned(),
              "a copy beside the host from memory that is not pinned");
  TORCH_CHECK(!(to.is_cpu() && non_blocking) || to.is_pinned(),
              "a copy to the host that nobody waits for");
  Uses uses("aten::copy_");
  uses.Add(from, /*write=*/false);
  uses.Add(to, /*write=*/true);
  if (to.is_cpu() && non_blocking) {
    CopyLate(from.device().index(), OnHost(from), to);
    uses.Report();
    return to;
  }
  const bool late = from.is_cpu() && non_blocking;
  const at::Tensor numbers = late             ? CopiedFromHost(to.device().index(), from)
                             : from.is_cuda() ? OnHost(from)
                                              : from;
  at::Tensor target = to.is_cuda() ? OnHost(to) : to;
  const at::AutoDispatchBelowADInplaceOrView guard;
  target.copy_(numbers);
  uses.Report(to.is_cpu(), /*host_waits=*/!non_blocking && (to.is_cpu() || from.is_cpu()));
  return to;
}

at::Tensor View(const at::Tensor& self, c10::IntArrayRef size) {
  return at::native::view(self, size);
}
at::Tensor AsStrided(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride,
                     std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}
at::Tensor ReshapeAlias(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return AsStrided(self, size, stride, self.storage_offset());
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&RunOnHost>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &Empty);
  library.impl("empty_strided", &EmptyStrided);
  library.impl("copy_", &Copy);
  library.impl("view", &View);
  library.impl("as_strided", &AsStrided);
  library.impl("_reshape_alias", &ReshapeAlias);
  library.impl("_flash_attention_forward", &FlashForward);
  library.impl("_flash_attention_backward", &FlashBackward);
  library.impl("_scaled_dot_product_cudnn_attention", &CudnnTilesForward);
  library.impl("_scaled_dot_product_cudnn_attention_backward", &CudnnTilesBackward);
  library.impl("_fused_rms_norm", &FusedRmsNorm);
  library.impl("_fused_rms_norm_backward", &FusedRmsNormBackward);
  library.impl("addmm.dtype_out", &AddProductOut);
}

[[maybe_unused]] const bool kRegistered = [] {
  c10::SetAllocator(at::kCUDA, Allocator());
  return true;
}();

}  // namespace

void* HostAddress(const void* data) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(data) - kShift);
}

void Observe(MemoryObserver* other) { observer = other; }
MemoryObserver* Observer() { return observer; }
std::vector<std::string> OperationsOfStandIn() { return Uses::Names(); }

void RunOnHost(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  HostCall call(op);
  const size_t count = op.schema().arguments().size(), first = stack->size() - count;
  for (size_t i = 0; i < count; ++i) (*stack)[first + i] = call.Argument(i, (*stack)[first + i]);
  op.callBoxed(stack);
  call.TakeResized();
  for (size_t i = first; i < stack->size(); ++i) (*stack)[i] = call.Result((*stack)[i]);
  call.Report();
}

at::Tensor StandInOnHost(const at::Tensor& tensor) { return OnHost(tensor); }
at::Tensor ToStandIn(const at::Tensor& host, const at::TensorOptions& options) {
  at::Tensor result = at::empty(host.sizes(), options);
  OnHost(result).copy_(host);
  return result;
}
void ReportUses(const std::string& operation, at::TensorList reads, at::TensorList writes) {
  Uses uses(operation);
  for (const at::Tensor& tensor : reads) uses.Add(tensor, /*write=*/false);
  for (const at::Tensor& tensor : writes) uses.Add(tensor, /*write=*/true);
  uses.Report();
}

GpuCounts CountsOfStandIn() { return {operations, reads, FlashCalls(), HostWaits()}; }

}  // namespace equipoise::testing

namespace at {

// LibTorch finds its hooks by this name.
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return equipoise::testing::kStandInGpus; }
  DeviceIndex deviceCount() const override { return equipoise::testing::kStandInGpus; }
  DeviceIndex current_device() const override { return getCurrentDevice(); }
  DeviceIndex getCurrentDevice() const override {
    return c10::impl::getDeviceGuardImpl(kCUDA)->getDevice().index();
  }
  bool isPinnedPtr(const void* data) const override {
    return equipoise::testing::PinnedAllocator::IsPinned(data);
  }
  Allocator* getPinnedMemoryAllocator() const override {
    static auto* allocator = std::make_unique<equipoise::testing::PinnedAllocator>().release();
    return allocator;
  }
};
REGISTER_CUDA_HOOKS(CUDAHooks);

}  // namespace at
