#include "parallel/device.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "parallel/streams.h"

namespace equipoise {
namespace {

c10::impl::VirtualGuardImpl Backend(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

}  // namespace

at::Tensor ToDevice(const at::Tensor& tensor, at::Device device) {
  if (!tensor.defined() || tensor.device() == device) return tensor;
  if (!tensor.is_cpu() || tensor.numel() == 0) return tensor.to(device);
  // The allocator keeps the pinned memory until the copy is done.
  return tensor.pin_memory().to(device, tensor.scalar_type(), /*non_blocking=*/true);
}

void Synchronize(at::Device device) {
  if (!device.is_cpu()) Backend(device).synchronizeDevice(device.index());
}

void DeviceClock::Start() {
  WaitForComputeStream(device_);
  origin_ = Now();
}

DeviceClock::Mark DeviceClock::Now() const {
  Mark mark{Clock::now(), nullptr};
  if (device_.is_cpu()) return mark;
  auto event = std::make_shared<c10::Event>(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  event->record(Backend(device_).getStream(device_));
  mark.event = std::move(event);
  return mark;
}

DeviceClock::Clock::time_point DeviceClock::TimeOf(const Mark& mark) const {
  if (mark.event == nullptr) return mark.host;
  const auto& from = *static_cast<const c10::Event*>(origin_.event.get());
  const std::chrono::duration<double, std::milli> since(
      from.elapsedTime(*static_cast<const c10::Event*>(mark.event.get())));
  return origin_.host + std::chrono::duration_cast<Clock::duration>(since);
}

double DeviceSeconds(at::Device device, const std::function<void()>& give) {
  DeviceClock clock(device);
  clock.Start();
  const DeviceClock::Mark begin = clock.Now();
  give();
  const DeviceClock::Mark end = clock.Now();
  clock.Finish();
  return std::chrono::duration<double>(clock.TimeOf(end) - clock.TimeOf(begin)).count();
}

}  // namespace equipoise
