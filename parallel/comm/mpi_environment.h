#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/comm/rank_status.h"

namespace equipoise {

class Engine;
struct MpiChannels;

// The life of MPI in a program, with its two ways to end. Without mpirun it is a world of one and
// never calls MPI.
//
//   MpiEnvironment mpi;
//   try {
//     auto world = MakeWorldCommunicator(mpi, options);
//     ...                          // all communicators end here
//     mpi.Close();
//   } catch (const UserError& error) {
//     ... print ...
//     mpi.Abandon({code, error.what()});
//   }
//
// Destroyed without either, it does not finalize MPI, and mpirun ends the other ranks.
class MpiEnvironment {
 public:
  // Initializes MPI under mpirun. Collective. Throws RunError.
  MpiEnvironment();
  ~MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;

  // Whether mpirun, or Slurm with PMIx, has started this process.
  static bool UnderMpirun();
  // Whether it was mpirun.
  static bool StartedByMpirun();
  // How many processes a launcher that is not MPI's here has started, each of which would be a
  // world of one: another MPI's mpirun, or Slurm without PMIx; 0: none has. `number`: of this
  // process.
  static int StrangersTogether(int* number);
  // Whether NCCL is allowed to let ranks share a GPU: NCCL_MULTI_RANK_GPU_ENABLE=1.
  static bool NcclSharesGpus();

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Rank and number of ranks on this machine.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  // Processors for this rank's threads: its share of those that it may run on.
  int64_t processors() const { return processors_; }
  // The first rank of this machine: the same number on all of its ranks, and on no others.
  int machine() const { return machine_; }

  // Starts the communication thread. Called once; REQUIRES: size() > 1.
  std::shared_ptr<Engine> Connect(const CommOptions& options);
  // The engine that Connect() has made; null before.
  const std::shared_ptr<Engine>& engine() const { return engine_; }

  // Waits for all ranks and finalizes MPI. REQUIRES: no communicator is left. Throws RunError that
  // names a rank that does not arrive.
  void Close();

  // Ends this process after a failure that it has already reported. Sends `report` to the other
  // ranks, waits until each has reported its own side too (or is unable to), for 10 s at most, and
  // exits with its exit code, or that of the rank that failed first, as mpirun then does. Calls
  // `unheard` where rank 0 has not reported the failure.
  [[noreturn]] void Abandon(const ExitReport& report, const std::function<void()>& unheard = {});

 private:
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1, machine_ = 0;
  int64_t processors_ = 1;
  std::unique_ptr<MpiChannels> channels_;  // while MPI is up
  std::shared_ptr<Engine> engine_;
};

}  // namespace equipoise
