#pragma once

#include <string>

#include "parallel/comm/communicator.h"

namespace equipoise {

// A wish to save and stop, from outside: SIGUSR1 (mpirun forwards it), SIGTERM straight to the rank
// (Slurm), a first Ctrl-C at a process alone, or the file RUN/stop.
//
// A SIGTERM within a second of a SIGCONT is another thing: mpirun ends the job that way (SIGCONT,
// SIGTERM a quarter of a second later, then SIGKILL), because a rank died or it was told to. There
// is no time to save, and peers may be gone: no collective may be started.
//
// Holds the signal handlers of the process, so one object a process.
class StopRequest {
 public:
  // Keeps a SIGUSR1 that comes before the object is there for it: until then it would end the
  // process. First thing in main, as threads inherit it; it outlives exec. A program that makes no
  // object ignores SIGUSR1.
  static void HoldSignals();

  StopRequest();
  // Restores the handlers, and the hold, that were there before.
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // Watches RUN/stop from now on, and removes one that is left from before. For rank 0.
  void WatchFile(const std::string& run_dir);
  // Whether this rank was asked to stop.
  bool Requested() const;
  // Whether mpirun is ending the job.
  bool Ending() const;
  // Whether any rank was asked to stop; the same answer on every rank. Collective (one int64
  // all-reduce). Throws AlreadyReportedError, without a collective, when Ending().
  bool AgreeToStop(Communicator& world) const;
  // Removes the stop file, so that the next run does not stop at once. After the checkpoint is
  // saved.
  void Honoured() const;

 private:
  std::string file_;
  bool was_held_ = false;
};

}  // namespace equipoise
