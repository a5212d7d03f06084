#include "parallel/host_copies.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <exception>
#include <map>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {
namespace {

c10::Stream ComputeStream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

c10::Event Recorded(const c10::Stream& stream) {
  c10::Event event(stream.device_type(), c10::EventFlag::PYTORCH_DEFAULT);
  event.record(stream);
  return event;
}

}  // namespace

CopyToHost::CopyToHost(const at::Tensor& from, at::Tensor to) {
  to.copy_(from, /*non_blocking=*/true);
  event_.emplace(Recorded(ComputeStream(from.device())));
}

void CopyToHost::Wait() {
  if (event_) event_->synchronize();
  event_.reset();
}

at::Tensor PinnedMemory(int64_t numel, at::ScalarType dtype) {
  try {
    return at::empty({numel}, at::TensorOptions().dtype(dtype).pinned_memory(true));
  } catch (const std::exception&) {  // c10::Error of an allocator, or of the driver
    throw RunError(fmt::format(
        "train.offload: this machine gives no more pinned memory ({:.1f} MiB were asked for); "
        "raise the limit of locked memory (ulimit -l), start fewer ranks on it, or leave "
        "train.offload out",
        static_cast<double>(numel) * static_cast<double>(c10::elementSize(dtype)) / (1 << 20)));
  }
}

void CopyMark::Wait() const {
  if (event_) event_->synchronize();
}

void CopyMark::WaitOnStream() const {
  if (event_) event_->block(ComputeStream(event_->device()));
}

CopyStream::CopyStream(at::Device device, CopyDirection direction) {
  if (device.is_cpu()) return;
  thread_local std::map<std::pair<int, CopyDirection>, c10::Stream> streams;
  const std::pair<int, CopyDirection> key(device.index(), direction);
  auto found = streams.find(key);
  if (found == streams.end()) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    found = streams.emplace(key, guard.getStreamFromGlobalPool(device)).first;
  }
  stream_ = found->second;
}

void CopyStream::Follow() const {
  if (stream_) Recorded(ComputeStream(stream_->device())).block(*stream_);
}

CopyMark CopyStream::Mark() const { return stream_ ? CopyMark(Recorded(*stream_)) : CopyMark(); }

}  // namespace equipoise
