#pragma once

#include <memory>

#include "parallel/comm/communicator.h"

namespace equipoise {

class MpiEnvironment;

// How this process was started: alone, or as one of the ranks of `mpirun`.
struct Launch {
  int rank = 0;
  int size = 1;
  int local_rank = 0;      // among the ranks on this machine
  int local_size = 1;
  MpiEnvironment* mpi = nullptr;   // null when alone

  // The group of all ranks. Collective; call it once.
  std::unique_ptr<Communicator> MakeWorld(const CommOptions& options) const;
};

}  // namespace equipoise
