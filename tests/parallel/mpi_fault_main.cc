// Lets one rank of a run go wrong in a given way; every rank reports what it sees as the trainer
// would.
// usage: mpi_fault RANK stop|late|pause|sleep|kill|throw TIMEOUT_S
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "configs/base/error.h"
#include "parallel/comm/make_communicator.h"

namespace equipoise {
namespace {

void GoWrong(const std::string& how) {
  std::fprintf(
      stderr, "wrong at %.3f\n",
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  if (how == "stop" || how == "late") raise(SIGSTOP);
  if (how == "pause") std::this_thread::sleep_for(std::chrono::seconds(1));
  if (how == "kill") raise(SIGKILL);
  if (how == "sleep") std::this_thread::sleep_for(std::chrono::seconds(300));
  if (how == "throw") throw DataError("train.jsonl:7: broken");
}

// Rank n - 1 goes wrong; rank 1 waits for it, rank 2 for rank 1, and rank 0 in a collective that
// rank 2 has not entered yet.
void Work(MpiEnvironment& mpi, int bad_rank, const std::string& how, int timeout_s) {
  CommOptions options;
  options.timeout = std::chrono::seconds(timeout_s);
  const auto world = MakeWorldCommunicator(mpi, options);
  const auto group = world->Split(/*color=*/0, world->rank(), "data");
  at::Tensor tensor = at::zeros({1 << 18});
  group->AllReduce(tensor, ReduceOp::kSum).Wait();
  std::fprintf(stderr, "pid of rank %d: %d\n", mpi.rank(), static_cast<int>(getpid()));
  if (mpi.rank() == bad_rank) GoWrong(how);
  // Computes past everyone's deadline.
  if (how == "late" && mpi.rank() == 0) {
    std::this_thread::sleep_for(std::chrono::seconds(2 * timeout_s));
  }
  if (how != "pause" && mpi.rank() == 2) world->Recv(tensor, 1).Wait();
  if (how != "pause" && mpi.rank() == 1) world->Recv(tensor, bad_rank).Wait();
  group->AllReduce(tensor, ReduceOp::kSum).Wait();
}

int Main(int bad_rank, const std::string& how, int timeout_s) {
  MpiEnvironment mpi;
  try {
    Work(mpi, bad_rank, how, timeout_s);
    mpi.Close();
    return 0;
  } catch (const UserError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    mpi.Abandon({static_cast<int>(error.code()), error.what()});
  }
}

}  // namespace
}  // namespace equipoise

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return equipoise::Main(std::stoi(argv[1]), argv[2], std::stoi(argv[3]));
}
