#include "parallel/zero/copy_to_host.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <exception>

#include "configs/base/error.h"

namespace equipoise {

CopyToHost::CopyToHost(const at::Tensor& from, at::Tensor to) {
  to.copy_(from, /*non_blocking=*/true);
  const at::Device device = from.device();
  event_.emplace(device.type(), c10::EventFlag::PYTORCH_DEFAULT);
  event_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

void CopyToHost::Wait() {
  if (event_) event_->synchronize();
  event_.reset();
}

at::Tensor PinnedMemory(int64_t numel, at::ScalarType dtype) {
  try {
    return at::empty({numel}, dtype).pin_memory();
  } catch (const std::exception&) {  // c10::Error of an allocator, or of the driver
    throw RunError(fmt::format(
        "train.offload: this machine gives no more pinned memory ({:.1f} MiB were asked for); "
        "raise the limit of locked memory (ulimit -l), start fewer ranks on it, or leave "
        "train.offload out",
        static_cast<double>(numel) * static_cast<double>(c10::elementSize(dtype)) / (1 << 20)));
  }
}

}  // namespace equipoise
