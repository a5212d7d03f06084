#pragma once

#include <functional>
#include <memory>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/comm/rank_status.h"

namespace equipoise {

class Engine;
struct MpiChannels;

// MPI for the life of the program, and its two ways to end. Started by hand, without mpirun, it
// is a world of one and never touches MPI.
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
// Destroyed without either, MPI is not finalised, and so mpirun ends the other ranks.
class MpiEnvironment {
 public:
  // Collective. Throws RunError.
  MpiEnvironment();
  ~MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;

  // Whether mpirun, or Slurm with PMIx, has started this process.
  static bool UnderMpirun();
  // Whether NCCL was told to let ranks share a GPU: NCCL_MULTI_RANK_GPU_ENABLE=1.
  static bool NcclSharesGpus();

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Among the ranks of this machine.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  // The first rank of this machine: the same number on all of its ranks, and on no others.
  int machine() const { return machine_; }

  // Starts the communication thread. Called once; REQUIRES: size() > 1.
  std::shared_ptr<Engine> Connect(const CommOptions& options);

  // Waits for all ranks and finalises MPI. REQUIRES: no communicator is left. Throws RunError that
  // names a rank which does not come.
  void Close();

  // Ends this process after a failure that it has already reported. Tells the other ranks `word`,
  // waits until each has told its own side too (or is unable to), for 10 s at most, and leaves with
  // its exit code, or that of the rank that failed first. mpirun ends with it as well. `unheard` is
  // called where rank 0 has not come to report it.
  [[noreturn]] void Abandon(const ExitReport& word, const std::function<void()>& unheard = {});

 private:
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1, machine_ = 0;
  std::unique_ptr<MpiChannels> channels_;  // while MPI is up
  std::shared_ptr<Engine> engine_;
};

}  // namespace equipoise
