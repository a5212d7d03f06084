// Events are moments of the host's clock, and every stream has always done its work.

#include "tests/device/stand_in_streams.h"

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "tests/device/gpu_stand_in.h"
#include "tests/device/late_copies.h"

namespace equipoise::testing {
namespace {

std::atomic<int64_t> waits{0};
thread_local c10::DeviceIndex current_gpu = 0;
thread_local std::array<c10::StreamId, kStandInGpus> current_stream = {};  // 0: the default one
std::atomic<c10::StreamId> streams{0};

// No address that anything lies at.
void* Handle(c10::StreamId stream) {
  constexpr uintptr_t kHandles = uintptr_t{1} << 61;
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return stream == 0 ? nullptr : reinterpret_cast<void*>(kHandles + static_cast<uintptr_t>(stream));
}
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  at::DeviceType type() const override { return at::kCUDA; }
  at::Device exchangeDevice(at::Device device) const override {
    return {at::kCUDA, std::exchange(current_gpu, device.index())};
  }
  at::Device getDevice() const override { return {at::kCUDA, current_gpu}; }
  void setDevice(at::Device device) const override { current_gpu = device.index(); }
  void uncheckedSetDevice(at::Device device) const noexcept override {
    current_gpu = device.index();
  }
  c10::Stream getStream(at::Device device) const override {
    return StreamOf(device, current_stream.at(Index(device)));
  }
  c10::Stream getDefaultStream(at::Device device) const override { return StreamOf(device, 0); }
  c10::Stream getStreamFromGlobalPool(at::Device device, bool /*high*/) const override {
    return StreamOf(device, ++streams);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const at::Device device = stream.device();
    return StreamOf(device, std::exchange(current_stream.at(Index(device)), stream.id()));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return Handle(stream.id());
  }
  void recordDataPtrOnStream(const at::DataPtr& data, const c10::Stream& stream) const override {
    static_cast<c10::DeviceAllocator*>(c10::GetAllocator(at::kCUDA))->recordStream(data, stream);
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kStandInGpus; }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) *event = std::make_unique<Event>().release();
    const int gpu = stream.device_index();
    *static_cast<Event*>(*event) = {Clock::now(), gpu, LateCopies(gpu)};
    if (Observer() != nullptr) Observer()->Recorded(gpu, Handle(stream.id()), *event);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (Observer() == nullptr || event == nullptr) return;
    Observer()->StreamWaited(stream.device_index(), Handle(stream.id()), event);
  }
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    std::unique_ptr<Event>(static_cast<Event*>(event)).reset();
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& stream) const override {
    WaitOnHost(stream.device_index(), Handle(stream.id()), "a synchronisation");
  }
  void synchronizeEvent(void* event) const override {
    const auto* recorded = static_cast<Event*>(event);
    if (recorded == nullptr) return;
    Arrived(recorded->gpu, recorded->copies);
    if (Observer() != nullptr) Observer()->HostWaitedFor(recorded->gpu, event);
  }
  void synchronizeDevice(c10::DeviceIndex gpu) const override {
    WaitOnHost(gpu, nullptr, "a synchronisation");
    if (Observer() == nullptr) return;
    for (c10::StreamId stream = 1; stream <= streams; ++stream)
      Observer()->HostWaited(gpu, Handle(stream), "a synchronisation");
  }
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(static_cast<Event*>(to)->time -
                                                     static_cast<Event*>(from)->time)
        .count();
  }

 private:
  static size_t Index(at::Device device) {
    return static_cast<size_t>(device.has_index() ? device.index() : current_gpu);
  }
  static c10::Stream StreamOf(at::Device device, c10::StreamId stream) {
    const auto gpu = static_cast<c10::DeviceIndex>(Index(device));
    return c10::Stream(c10::Stream::UNSAFE, at::Device(at::kCUDA, gpu), stream);
  }

  using Clock = std::chrono::steady_clock;
  struct Event {
    Clock::time_point time;
    int gpu = 0;
    int64_t copies = 0;  // given before
  };
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard);

}  // namespace

c10::DeviceIndex& CurrentGpu() { return current_gpu; }

void* HandleOf(const c10::Stream& stream) { return Handle(stream.id()); }

void* CurrentHandle(int gpu) { return Handle(current_stream.at(static_cast<size_t>(gpu))); }

void WaitOnHost(int gpu, void* stream, const std::string& operation) {
  ++waits;
  Arrived(gpu, LateCopies(gpu));
  if (Observer() != nullptr) Observer()->HostWaited(gpu, stream, operation);
}

int64_t HostWaits() { return waits; }

}  // namespace equipoise::testing
