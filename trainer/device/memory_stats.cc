#include "trainer/device/memory_stats.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/alignment.h>
#include <c10/util/Exception.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace equipoise {
namespace {

// A tensor's memory, aligned by hand: of posix_memalign() glibc before 2.38 leaves a freed block
// too small for the next of the same size, so that up to eight of a size are taken. What malloc()
// returned stands before it.
char* Allocate(size_t bytes) {
  auto* block = static_cast<char*>(std::malloc(bytes + c10::gAlignment));
  TORCH_CHECK(block != nullptr, "not enough memory: ", bytes, " bytes of a tensor");
  const auto past = reinterpret_cast<uintptr_t>(block) % c10::gAlignment;
  char* data = block + (c10::gAlignment - past);  // 16 bytes on, or more
  std::memcpy(data - sizeof(block), &block, sizeof(block));
  return data;
}

char* BlockOf(const void* data) {
  char* block = nullptr;
  std::memcpy(&block, static_cast<const char*>(data) - sizeof(block), sizeof(block));
  return block;
}

// Allocator of LibTorch that counts bytes. LibTorch has a raw pointer to it and frees tensors until
// the process ends, so that the object and its counters must have trivial destructors.
class CountingAllocator final : public at::Allocator {
 public:
  constexpr CountingAllocator() = default;

  at::DataPtr allocate(size_t bytes) override {
    void* data = bytes == 0 ? nullptr : Allocate(bytes);
    if (data != nullptr) Add(static_cast<int64_t>(malloc_usable_size(BlockOf(data))));
    return {data, data, &Free, at::Device(at::DeviceType::CPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  static CpuMemory Get() { return {current, peak, marked_peak, 0}; }
  static void Mark() { marked_peak = current.load(); }

 private:
  static void Add(int64_t bytes) {
    const int64_t now = current += bytes;
    Raise(peak, now);
    Raise(marked_peak, now);
  }
  static void Raise(std::atomic<int64_t>& highest, int64_t now) {
    int64_t before = highest;
    while (now > before && !highest.compare_exchange_weak(before, now)) {
    }
  }
  static void Free(void* data) {
    if (data == nullptr) return;
    char* block = BlockOf(data);
    current -= static_cast<int64_t>(malloc_usable_size(block));
    std::free(block);
  }

  static inline std::atomic<int64_t> current{0};
  static inline std::atomic<int64_t> peak{0};
  static inline std::atomic<int64_t> marked_peak{0};
};

// Memory of a GPU. LibTorch's allocator has a single peak, which a mark resets; the highest peak
// before is kept here.
class GpuMemory {
 public:
  static CpuMemory Get(at::Device device) {
    const auto stats = Allocator(device)->getDeviceStats(device.index());
    const auto& bytes = stats.allocated_bytes[0];
    return {bytes.current, std::max<int64_t>(peak_before_mark, bytes.peak), bytes.peak,
            stats.reserved_bytes[0].peak};
  }
  static void Mark(at::Device device) {
    peak_before_mark = Get(device).peak_bytes;
    Allocator(device)->resetPeakStats(device.index());
  }
  static void ReturnFree(at::Device device) { Allocator(device)->emptyCache(); }
  static void Forget(at::Device device) {
    Allocator(device)->resetPeakStats(device.index());
    peak_before_mark = 0;
  }

 private:
  static c10::DeviceAllocator* Allocator(at::Device device) {
    return c10::getDeviceAllocator(device.type());
  }
  static inline std::atomic<int64_t> peak_before_mark{0};
};

}  // namespace

void CountCpuMemory() {
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator);
}

CpuMemory GetCpuMemory() { return CountingAllocator::Get(); }

void MarkCpuMemory() { CountingAllocator::Mark(); }

CpuMemory GetMemory(at::Device device) {
  return device.is_cpu() ? GetCpuMemory() : GpuMemory::Get(device);
}

void MarkMemory(at::Device device) { device.is_cpu() ? MarkCpuMemory() : GpuMemory::Mark(device); }

void KeepFreedMemory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
}

void ReturnFreeMemory() { malloc_trim(/*pad=*/0); }

void ReturnScatteredMemory() {
  const CpuMemory tensors = GetCpuMemory();
  const auto needed = static_cast<size_t>(tensors.peak_bytes - tensors.current_bytes);
  constexpr size_t kOther = size_t{64} << 20;  // of what are no tensors
  if (mallinfo2().fordblks > needed + needed / 4 + kOther) ReturnFreeMemory();
}

void ReturnFreeMemory(at::Device device) {
  if (!device.is_cpu()) GpuMemory::ReturnFree(device);
}

void ForgetMemoryPeak(at::Device device) {
  if (!device.is_cpu()) GpuMemory::Forget(device);
}

int64_t PeakRssBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    const std::string key = "VmHWM:";
    if (line.starts_with(key)) return std::stoll(line.substr(key.size())) * 1024;
  }
  return 0;
}

}  // namespace equipoise
