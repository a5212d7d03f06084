#include "trainer/device/memory_stats.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

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

}  // namespace
}  // namespace equipoise
