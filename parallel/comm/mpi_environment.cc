#include "parallel/comm/mpi_environment.h"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <vector>

#include "configs/base/error.h"
#include "parallel/comm/engine.h"
#include "parallel/comm/group_communicator.h"
#include "parallel/comm/mpi_transport.h"
#include "parallel/comm/processors.h"

namespace equipoise {
namespace {

using std::chrono::milliseconds;

// Time for a rank that computes to notice a failure and report its side of it.
constexpr milliseconds kGrace{10000};
// Time for the last status to reach the other ranks.
constexpr milliseconds kLastStatus{50};

// mpirun ends such a rank when another has left; Slurm waits for it, perhaps for ever.
[[noreturn]] void EndStuckRank(int rank, const std::string& failure) {
  std::fprintf(stderr,
               "[rank %d] equipoise: %s; this rank was still reading or computing a minute later, "
               "and is ended\n",
               rank, failure.c_str());
  std::fflush(nullptr);
  std::_Exit(static_cast<int>(ExitCode::kRunFailed));
}

}  // namespace

bool MpiEnvironment::UnderMpirun() { return StartedByMpirun() || std::getenv("PMIX_RANK"); }

bool MpiEnvironment::StartedByMpirun() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr; }

int MpiEnvironment::StrangersTogether(int* number) {
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    return text == nullptr ? 0 : std::atoi(text);
  };
  // In a shell that srun has opened the numbers are those of the shell.
  const bool shell = std::getenv("SLURM_PTY_PORT") != nullptr;
  const int steps = shell ? 0 : value("SLURM_STEP_NUM_TASKS"), others = value("PMI_SIZE");
  *number = others > 1 ? value("PMI_RANK") : value("SLURM_PROCID");
  const int together = std::max(steps, others);
  return UnderMpirun() || together < 2 ? 0 : together;
}

bool MpiEnvironment::NcclSharesGpus() {
  const char* enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return enabled != nullptr && std::string(enabled) == "1";
}

MpiEnvironment::MpiEnvironment() {
  processors_ = ProcessorShare(/*sharing=*/1, /*processes=*/1);
  if (!UnderMpirun()) return;
  // By default an error of MPI_Init aborts the process, and mpirun may hang then.
  setenv("OMPI_MCA_mpi_initial_errhandler", "mpi_errors_return", /*overwrite=*/0);
  int provided = MPI_THREAD_SINGLE;
  CheckMpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_SERIALIZED) {
    throw RunError("this MPI gives no MPI_THREAD_SERIALIZED; use one built with threads");
  }
  CheckMpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  CheckMpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  MPI_Comm machine = MPI_COMM_NULL;
  CheckMpi(
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine),
      "MPI_Comm_split_type");
  CheckMpi(MPI_Comm_rank(machine, &local_rank_), "MPI_Comm_rank");
  CheckMpi(MPI_Comm_size(machine, &local_size_), "MPI_Comm_size");
  machine_ = rank_;
  CheckMpi(MPI_Bcast(&machine_, 1, MPI_INT, /*root=*/0, machine), "MPI_Bcast");
  std::vector<uint64_t> sets(static_cast<size_t>(local_size_));
  const uint64_t own = AllowedProcessors().hash;
  CheckMpi(MPI_Allgather(&own, 1, MPI_UINT64_T, sets.data(), 1, MPI_UINT64_T, machine),
           "MPI_Allgather");
  processors_ =
      ProcessorShare(static_cast<int>(std::count(sets.begin(), sets.end(), own)), local_size_);
  CheckMpi(MPI_Comm_free(&machine), "MPI_Comm_free");
  channels_ = std::make_unique<MpiChannels>(OpenMpiChannels());
}

MpiEnvironment::~MpiEnvironment() {
  if (engine_) engine_->Stop();
}

std::shared_ptr<Engine> MpiEnvironment::Connect(const CommOptions& options) {
  EQUIPOISE_CHECK(channels_ && size_ > 1 && !engine_, "one engine in a world of several ranks");
  CommOptions ending = options;
  ending.stuck = EndStuckRank;
  engine_ = std::make_shared<Engine>(MakeMpiTransport(*channels_, options), ending);
  return engine_;
}

void MpiEnvironment::Close() {
  if (!channels_) return;
  if (engine_) {
    EQUIPOISE_CHECK(engine_.use_count() == 1, "a communicator outlives the run");
    {
      GroupCommunicator everyone(engine_, GroupCommunicator::Everyone::kClosing);
      Barrier(everyone);
    }
    engine_.reset();
  }
  channels_.reset();
  CheckMpi(MPI_Finalize(), "MPI_Finalize");
}

void MpiEnvironment::Abandon(const ExitReport& report, const std::function<void()>& unheard) {
  int exit_code = report.exit_code;
  std::fflush(nullptr);
  if (channels_ && size_ > 1) {
    bool root_reported = false;
    try {
      if (!engine_) Connect({});
      const Engine::ExitStatus exit_status = engine_->Leave(report, kGrace);
      exit_code = exit_status.exit_code;
      root_reported = exit_status.root_reported;
    } catch (const std::exception&) {  // what failed in Connect() before: no rank can be told
    }
    if (!root_reported && unheard) unheard();
    std::fflush(nullptr);
    std::this_thread::sleep_for(kLastStatus);
  }
  // No destructors: other threads may be anywhere, and MPI can no longer be finalized.
  std::_Exit(exit_code);
}

}  // namespace equipoise
