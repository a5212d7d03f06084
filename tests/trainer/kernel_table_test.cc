#include "trainer/outputs/kernel_table.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace equipoise {
namespace {

constexpr int64_t kMs = 1'000'000;

TracedWork Work(const std::string& name, int64_t lane, int64_t start_ms, int64_t end_ms) {
  return {name, lane, start_ms * kMs, end_ms * kMs};
}

TEST_CASE("kernel table: the longest first, per step, and gaps of the fullest stream") {
  const std::vector<TracedWork> work = {
      Work("copy", 20, 0, 4),
      Work("gemm", 7, 16, 20),
      Work("add", 7, 10, 12),
      Work("gemm", 7, 24, 30),
  };
  CHECK(KernelTable(work, 2, KernelKind()) ==
        "launches     ms/step   share %  CUDA kernels\n"
        "       2       5.000     62.50  gemm\n"
        "       1       2.000     25.00  copy\n"
        "       1       1.000     12.50  add\n"
        "busy 6.000 ms per step, idle 4.000 ms per step: stream 7, first to last\n");
}

TEST_CASE("kernel table: an operator's time is without that of those it calls") {
  const std::vector<TracedWork> work = {
      Work("mm", 1, 2, 8),       // in linear
      Work("linear", 1, 0, 10),  //
      Work("empty", 1, 2, 3),    // in mm, with the same start
      Work("linear", 2, 0, 1),   // another thread's at the same time
      Work("mm", 1, 10, 11),     // behind the first linear, not in it
  };
  CHECK(KernelTable(work, 1, OperatorKind()) ==
        "launches     ms/step   share %  operators\n"
        "       2       6.000     50.00  mm\n"
        "       2       5.000     41.67  linear\n"
        "       1       1.000      8.33  empty\n"
        "busy 11.000 ms per step, idle 0.000 ms per step: thread 1, first to last\n");
}

TEST_CASE("kernel table: kernels that overlap on a stream keep their time, which is busy once") {
  const std::vector<TracedWork> work = {Work("a", 7, 0, 6), Work("b", 7, 4, 10)};
  CHECK(KernelTable(work, 1, KernelKind()) ==
        "launches     ms/step   share %  CUDA kernels\n"
        "       1       6.000     50.00  a\n"
        "       1       6.000     50.00  b\n"
        "busy 10.000 ms per step, idle 0.000 ms per step: stream 7, first to last\n");
}

TEST_CASE("kernel table: long names are cut, and apart still") {
  const std::string head(130, 'k');
  const std::string text =
      KernelTable({Work(head + "1", 7, 0, 1), Work(head + "2", 7, 1, 2)}, 1, KernelKind());
  const std::string row = "       1       1.000     50.00  " + std::string(120, 'k') + "\n";
  CHECK(text.find(row + row) != std::string::npos);
}

TEST_CASE("kernel table: nothing recorded, and nothing that takes time") {
  CHECK(KernelTable({}, 1, KernelKind()) == "no CUDA kernels\n");
  CHECK(KernelTable({Work("empty", 1, 5, 5)}, 1, OperatorKind()) ==
        "launches     ms/step   share %  operators\n"
        "       1       0.000      0.00  empty\n"
        "busy 0.000 ms per step, idle 0.000 ms per step: thread 1, first to last\n");
}

}  // namespace
}  // namespace equipoise
