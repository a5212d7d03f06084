#include "parallel/host_copies.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <exception>
#include <map>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {
CopyToHost::CopyToHost(const at::Tensor& from, at::Tensor to) {
  to.copy_(from, /*non_blocking=*/true);
  copied_ = StreamMark::Here(from.device());
}

void CopyToHost::Wait() {
  copied_.Wait();
  copied_ = {};
}

at::Tensor PinnedMemory(int64_t numel, at::ScalarType dtype) {
  try {
    return at::empty({numel}, at::TensorOptions().dtype(dtype).pinned_memory(true));
  } catch (const std::exception&) {  // c10::Error of an allocator, or of the driver
    throw RunError(fmt::format(
        "train.offload: this machine gives no more pinned memory ({:.1f} MiB were asked for); "
        "raise the limit of locked memory (ulimit -l), start fewer ranks on it, or leave "
        "train.offload, or balance.recompute's offload, out",
        static_cast<double>(numel) * static_cast<double>(c10::elementSize(dtype)) / (1 << 20)));
  }
}

CopyStream::CopyStream(at::Device device, CopyDirection direction) {
  if (device.is_cpu()) return;
  thread_local std::map<std::pair<int, CopyDirection>, c10::Stream> streams;
  const std::pair<int, CopyDirection> key(device.index(), direction);
  auto found = streams.find(key);
  if (found == streams.end()) {
    found = streams.emplace(key, *StreamBeside(device)).first;
  }
  stream_ = found->second;
}

void CopyStream::Follow() const {
  if (stream_) StreamMark::Here(stream_->device()).HoldUp(*stream_);
}

StreamMark CopyStream::Mark() const { return stream_ ? StreamMark::Of(*stream_) : StreamMark(); }

}  // namespace equipoise
