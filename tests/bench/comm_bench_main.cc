// Times our operations beside raw loops over MPI's transfers, on the ranks that scripts/bench/comm
// has started. Median milliseconds, a line for each operation and size: name, raw loop, ours, and
// MPI's own operation, if any; then the share of a core that a waiting receive takes.
// usage: comm_bench [ROUNDS]
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/make_communicator.h"

namespace equipoise {
namespace {

using Clock = std::chrono::steady_clock;
using Call = std::function<void()>;

// Milliseconds of `rounds` calls, after one that is not counted.
void AddTimes(int rounds, const Call& call, std::vector<double>& times) {
  for (int i = 0; i <= rounds; ++i) {
    const auto start = Clock::now();
    call();
    if (i == 0) continue;
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
}

double Median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

// The same by MPI's transfers alone, as one would write it down: no queue, no deadline, no order of
// messages but MPI's own.
class RawLoops {
 public:
  explicit RawLoops(int64_t numel) : numel_(numel) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    parts_ = at::empty({size_, Shard(1)}, at::kFloat);
  }

  // To the next rank, while one comes from the rank before.
  void Shift(const at::Tensor& to, const at::Tensor& from) {
    Start(from, 0, numel_, (rank_ + size_ - 1) % size_, &MPI_Irecv);
    Start(to, 0, numel_, (rank_ + 1) % size_, &MPI_Isend);
    Wait();
  }
  void AllGather(const at::Tensor& all) {
    Others([&](int rank) { Start(all, Begin(rank), Shard(rank), rank, &MPI_Irecv); });
    Others([&](int rank) { Start(all, Begin(rank_), Shard(rank_), rank, &MPI_Isend); });
    Wait();
  }
  void AllReduce(const at::Tensor& tensor) {
    Others([&](int rank) { Start(parts_[rank], 0, Shard(rank_), rank, &MPI_Irecv); });
    Others([&](int rank) { Start(tensor, Begin(rank), Shard(rank), rank, &MPI_Isend); });
    Wait();
    auto* sum = tensor.data_ptr<float>() + Begin(rank_);
    Others([&](int rank) {
      const auto* part = parts_[rank].const_data_ptr<float>();
      for (int64_t i = 0; i < Shard(rank_); ++i) sum[i] += part[i];
    });
    AllGather(tensor);
  }

 private:
  int64_t Begin(int rank) const { return numel_ * rank / size_; }
  int64_t Shard(int rank) const { return Begin(rank + 1) - Begin(rank); }
  void Others(const std::function<void(int)>& call) const {
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_) call(rank);
    }
  }
  template <class Transfer>
  void Start(const at::Tensor& tensor, int64_t begin, int64_t count, int peer, Transfer transfer) {
    transfer(tensor.data_ptr<float>() + begin, static_cast<int>(count), MPI_FLOAT, peer, 0,
             MPI_COMM_WORLD, &requests_.emplace_back());
  }
  void Wait() {
    MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
    requests_.clear();
  }

  int64_t numel_;
  int rank_ = 0, size_ = 1;
  at::Tensor parts_;
  std::vector<MPI_Request> requests_;
};

struct Row {
  const char* operation;
  int64_t bytes;
  std::vector<double> raw = {}, ours = {}, mpi = {};
};

void MeasureRaw(Row& row, int rounds) {
  at::Tensor x = at::ones({row.bytes / 4}), y = at::ones({row.bytes / 4});
  RawLoops loops(row.bytes / 4);
  const std::string operation = row.operation;
  if (operation == "send and receive") {
    AddTimes(
        rounds, [&] { loops.Shift(x, y); }, row.raw);
  } else if (operation == "all_gather") {
    AddTimes(
        rounds, [&] { loops.AllGather(x); }, row.raw);
  } else {
    AddTimes(
        rounds, [&] { loops.AllReduce(x); }, row.raw);
    const auto sum = [&] {
      MPI_Allreduce(MPI_IN_PLACE, x.data_ptr(), static_cast<int>(x.numel()), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    };
    AddTimes(rounds, sum, row.mpi);
  }
}

void MeasureOurs(Row& row, int rounds, Communicator& world) {
  at::Tensor x = at::ones({row.bytes / 4}), y = at::ones({row.bytes / 4});
  const int next = (world.rank() + 1) % world.size();
  const int before = (world.rank() + world.size() - 1) % world.size();
  const std::string operation = row.operation;
  if (operation == "send and receive") {
    const auto shift = [&] {
      Work to = world.Send(x, next), from = world.Recv(y, before);
      from.Wait();
      to.Wait();
    };
    AddTimes(rounds, shift, row.ours);
  } else if (operation == "all_gather") {
    const int64_t part = x.numel() / world.size();
    at::Tensor all = x.narrow(0, 0, part * world.size());
    const at::Tensor mine = all.narrow(0, part * world.rank(), part);
    AddTimes(
        rounds, [&] { world.AllGather(all, mine).Wait(); }, row.ours);
  } else {
    AddTimes(
        rounds, [&] { world.AllReduce(x, ReduceOp::kSum).Wait(); }, row.ours);
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
    world.Send(tensor, /*peer=*/0).Wait();
    return 0;
  }
  Work work = world.Recv(tensor, /*peer=*/1);
  world.ProgressInBackground();
  const std::clock_t before = std::clock();  // of all threads; this one sleeps
  std::this_thread::sleep_for(kDelay / 2);
  const double used_s = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  work.Wait();
  return used_s / (kDelay.count() / 2.0);
}

void Print(const std::vector<Row>& rows, double waiting) {
  for (const Row& row : rows) {
    std::printf("%s %lld\t%.6f\t%.6f", row.operation, static_cast<long long>(row.bytes),
                Median(row.raw), Median(row.ours));
    if (!row.mpi.empty()) std::printf("\t%.6f", Median(row.mpi));
    std::printf("\n");
  }
  std::printf("waiting\t%.6f\n", waiting);
}

int Main(int rounds) {
  MpiEnvironment mpi;
  std::vector<Row> rows;
  for (const char* operation : {"send and receive", "all_gather", "all_reduce"}) {
    for (const int64_t bytes : {4 << 10, 256 << 10, 2 << 20, 4 << 20, 16 << 20, 64 << 20})
      rows.push_back({operation, bytes});
  }
  // Before our communication thread starts: from then on it owns all calls of MPI.
  for (Row& row : rows) MeasureRaw(row, rounds);
  double waiting = 0;
  {
    const std::unique_ptr<Communicator> world = MakeWorldCommunicator(mpi, {});
    for (Row& row : rows) MeasureOurs(row, rounds, *world);
    if (mpi.size() > 1) waiting = ShareWhileWaiting(*world);
  }
  mpi.Close();
  if (mpi.rank() == 0) Print(rows, waiting);
  return 0;
}

}  // namespace
}  // namespace equipoise

int main(int argc, char** argv) { return equipoise::Main(argc > 1 ? std::stoi(argv[1]) : 15); }
