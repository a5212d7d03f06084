#include "parallel/streams.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace equipoise {
namespace {

c10::impl::VirtualGuardImpl Backend(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

}  // namespace

c10::Stream ComputeStream(at::Device device) { return Backend(device).getStream(device); }

std::optional<c10::Stream> StreamBeside(at::Device device) {
  if (device.is_cpu()) return std::nullopt;
  return Backend(device).getStreamFromGlobalPool(device);
}

void* ComputeStreamHandle(at::Device device) {
  return Backend(device).getStreamNativeHandle(ComputeStream(device));
}

void WaitForComputeStream(at::Device device) {
  if (!device.is_cpu()) ComputeStream(device).synchronize();
}

StreamMark StreamMark::Of(const c10::Stream& stream) {
  c10::Event event(stream.device_type(), c10::EventFlag::PYTORCH_DEFAULT);
  event.record(stream);
  return StreamMark(std::move(event));
}

StreamMark StreamMark::Here(at::Device device) {
  return device.is_cpu() ? StreamMark() : Of(ComputeStream(device));
}

void StreamMark::Wait() const {
  if (event_) event_->synchronize();
}

void StreamMark::WaitOnStream() const {
  if (event_) HoldUp(ComputeStream(event_->device()));
}

void StreamMark::HoldUp(const c10::Stream& stream) const {
  if (event_) event_->block(stream);
}

void UseOnStream(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return;
  Backend(tensor.device())
      .recordDataPtrOnStream(tensor.storage().data_ptr(), ComputeStream(tensor.device()));
}

}  // namespace equipoise
