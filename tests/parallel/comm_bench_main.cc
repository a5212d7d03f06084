// Times our all-reduce beside MPI's own on the ranks that mpirun has started: one line a size.
// usage: comm_bench [ROUNDS]
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/make_communicator.h"

namespace equipoise {
namespace {

using Clock = std::chrono::steady_clock;

// Milliseconds of a call. On a machine with other work the least of them says more.
struct Times {
  double median = 0, least = 0;
};

// Of `rounds` calls, after one that is not counted.
template <class Call>
Times TimesMs(int rounds, Call call) {
  std::vector<double> times;
  for (int i = 0; i <= rounds; ++i) {
    const auto start = Clock::now();
    call();
    if (i > 0) {
      times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
  }
  std::sort(times.begin(), times.end());
  return {times[rounds / 2], times.front()};
}

struct Row {
  int64_t bytes;
  Times mpi = {}, fp32 = {}, bf16 = {}, gather = {};
};

// Before our communication thread starts: from then on it owns all calls of MPI.
void MeasureMpi(std::vector<Row>& rows, int rounds) {
  for (Row& row : rows) {
    at::Tensor tensor = at::ones({row.bytes / 4}, at::kFloat);
    row.mpi = TimesMs(rounds, [&] {
      MPI_Allreduce(MPI_IN_PLACE, tensor.data_ptr(), static_cast<int>(tensor.numel()), MPI_FLOAT,
                    MPI_SUM, MPI_COMM_WORLD);
    });
  }
}

void MeasureOurs(std::vector<Row>& rows, int rounds, Communicator& world) {
  for (Row& row : rows) {
    at::Tensor fp32 = at::ones({row.bytes / 4}, at::kFloat);
    at::Tensor bf16 = at::ones({row.bytes / 2}, at::kBFloat16);
    at::Tensor part = at::ones({row.bytes / 4 / world.size()}, at::kFloat);
    at::Tensor all = at::ones({part.numel() * world.size()}, at::kFloat);
    row.fp32 = TimesMs(rounds, [&] { world.AllReduce(fp32, ReduceOp::kSum).Wait(); });
    row.bf16 = TimesMs(rounds, [&] { world.AllReduce(bf16, ReduceOp::kSum).Wait(); });
    row.gather = TimesMs(rounds, [&] { world.AllGather(all, part).Wait(); });
  }
}

// Share of a core that the communication thread takes while a receive waits for its sender: what
// early receives of a pipeline cost the compute beside them. Of rank 0.
double ShareWhileWaiting(Communicator& world) {
  constexpr std::chrono::seconds kDelay{2};
  at::Tensor tensor = at::ones({1 << 20});
  Barrier(world);
  if (world.rank() > 1) return 0;
  if (world.rank() == 1) {
    std::this_thread::sleep_for(kDelay);
    world.Send(tensor, /*to=*/0).Wait();
    return 0;
  }
  Work work = world.Recv(tensor, /*from=*/1);
  const std::clock_t before = std::clock();  // of all threads; this one sleeps
  std::this_thread::sleep_for(kDelay / 2);
  const double used_s = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  work.Wait();
  return used_s / (kDelay.count() / 2.0);
}

int Main(int rounds) {
  MpiEnvironment mpi;
  std::vector<Row> rows;
  for (const int64_t bytes : {8, 4 << 10, 256 << 10, 4 << 20, 64 << 20}) rows.push_back({bytes});
  if (mpi.size() > 1) MeasureMpi(rows, rounds);
  double waiting = 0;
  {
    const auto world = MakeWorldCommunicator(mpi, {});
    MeasureOurs(rows, rounds, *world);
    if (mpi.size() > 1) waiting = ShareWhileWaiting(*world);
  }
  mpi.Close();
  if (mpi.rank() != 0) return 0;
  std::printf("%d ranks, median and least ms of %d\n%12s %17s %17s %17s %17s\n", mpi.size(), rounds,
              "bytes", "MPI_Allreduce", "all_reduce", "in bf16", "all_gather");
  for (const Row& row : rows) {
    std::printf("%12lld", static_cast<long long>(row.bytes));
    for (const Times& times : {row.mpi, row.fp32, row.bf16, row.gather}) {
      std::printf(" %8.3f %8.3f", times.median, times.least);
    }
    std::printf("\n");
  }
  std::printf("a receive that waits takes %.2f %% of a core\n", 100 * waiting);
  return 0;
}

}  // namespace
}  // namespace equipoise

int main(int argc, char** argv) { return equipoise::Main(argc > 1 ? std::stoi(argv[1]) : 15); }
