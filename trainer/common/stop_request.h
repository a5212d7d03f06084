#pragma once

#include <string>

#include "parallel/comm/communicator.h"

namespace equipoise {

// An external request to save a checkpoint and stop: SIGUSR1 (forwarded by mpirun), SIGTERM sent to
// the rank (Slurm), the first Ctrl-C for a single process, or the file RUN/stop.
//
// Under mpirun a SIGTERM within a second of a SIGCONT is different: mpirun ends a job in this way
// (SIGCONT, SIGTERM a quarter of a second later, then SIGKILL) because a rank died or mpirun was
// ended. There is no time to save, and peers may be gone, so no collective may be started. Others
// that send both (timeout, systemd, Slurm) leave more time.
//
// Owns the signal handlers of the process: at most one object per process.
class StopRequest {
 public:
  // Blocks SIGUSR1, whose default action would end the process, until an object exists; a signal
  // that arrives earlier is pending until then. Call it first in main: threads and exec inherit the
  // signal mask. A program without an object ignores SIGUSR1.
  static void BlockSignals();

  StopRequest();
  // Restores the previous signal handlers and mask.
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // Watches RUN/stop from now on, and removes a file of an earlier request. For rank 0.
  void WatchFile(const std::string& run_dir);
  // Whether this rank has received a request.
  bool Requested() const;
  // Whether mpirun is ending the job.
  bool Ending() const;
  // Whether any rank has received a request; the same result on every rank. Collective (one int64
  // all-reduce). Throws AlreadyReportedError, without a collective, when Ending().
  bool AgreeToStop(Communicator& world) const;
  // Removes the stop file after the checkpoint is saved, so that the next run does not stop at
  // once.
  void RemoveFile() const;

 private:
  std::string file_;
  bool was_blocked_ = false;
};

}  // namespace equipoise
