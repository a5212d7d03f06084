#include "trainer/device/memory_stats.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/skip_case.h"

namespace equipoise {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST_CASE("CPU tensors are counted while they live", "[memory][cpu]") {
  const at::Tensor early = at::zeros({1024}, at::kFloat);  // before: never counted
  CountCpuMemory();
  const int64_t before = GetCpuMemory().current_bytes;
  {
    const at::Tensor a = at::empty({8 * kMiB}, at::kByte);
    const at::Tensor view = a.slice(0, 1, 2);
    CHECK(reinterpret_cast<uintptr_t>(a.data_ptr()) % 64 == 0);
    const int64_t held = GetCpuMemory().current_bytes - before;
    CHECK(held >= 8 * kMiB);
    CHECK(held < 9 * kMiB);
    const at::Tensor none = at::empty({0}, at::kByte);
    CHECK(GetCpuMemory().current_bytes - before == held);
  }
  CHECK(GetCpuMemory().current_bytes == before);
  CHECK(GetCpuMemory().peak_bytes >= before + 8 * kMiB);
}

TEST_CASE("the peak since a mark begins at what is held then", "[memory][cpu]") {
  CountCpuMemory();
  at::empty({16 * kMiB}, at::kByte).fill_(1);
  const at::Tensor held = at::empty({2 * kMiB}, at::kByte);
  MarkCpuMemory();
  const CpuMemory at_mark = GetCpuMemory();
  CHECK(at_mark.marked_peak_bytes == at_mark.current_bytes);
  at::empty({4 * kMiB}, at::kByte).fill_(1);
  const CpuMemory after = GetCpuMemory();
  CHECK(after.current_bytes == at_mark.current_bytes);
  CHECK(after.marked_peak_bytes >= at_mark.current_bytes + 4 * kMiB);
  CHECK(after.marked_peak_bytes < at_mark.current_bytes + 5 * kMiB);
  CHECK(after.peak_bytes >= at_mark.current_bytes + 14 * kMiB);
}

TEST_CASE("the count is exact with several threads", "[memory][cpu]") {
  CountCpuMemory();
  const int64_t before = GetCpuMemory().current_bytes;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 1; i < 500; ++i) at::empty({i * 37}, at::kByte).fill_(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(GetCpuMemory().current_bytes == before);
}

TEST_CASE("the peak resident set grows with what is touched", "[memory][cpu]") {
  const int64_t before = PeakRssBytes();
  CHECK(before > kMiB);
  std::vector<char> touched(static_cast<size_t>(256 * kMiB), 1);
  CHECK(PeakRssBytes() > before + 128 * kMiB);
}

int64_t Faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

int64_t RssBytes() {
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST_CASE("freed memory serves the next allocations, and goes where it is too much",
          "[memory][cpu]") {
#ifdef __SANITIZE_ADDRESS__
  return testing::SkipCase("malloc is the sanitizer's");
#endif
  CountCpuMemory();
  KeepFreedMemory();
  const auto step = [] { at::empty({48 * kMiB}, at::kByte).fill_(1); };
  step();
  const int64_t first = Faults();
  for (int i = 0; i < 8; ++i) step();
  ReturnScatteredMemory();  // no more than tensors have taken
  step();
  CHECK(Faults() - first < 48 * kMiB / sysconf(_SC_PAGESIZE));

  { const std::vector<char> others(static_cast<size_t>(512 * kMiB), 1); }
  const int64_t kept = RssBytes();
  ReturnScatteredMemory();
  CHECK(RssBytes() < kept - 256 * kMiB);
}

}  // namespace
}  // namespace equipoise
