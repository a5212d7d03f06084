#pragma once

#include <cstdio>
#include <exception>

#include "parallel/comm/mpi_environment.h"

namespace equipoise {

// Calls `body(mpi)` on the ranks that mpirun has started, and returns the program's exit code. A
// rank whose body throws prints its number and the error, and ends the job. To be called once.
template <class Body>
int RunUnderMpi(Body&& body) {
  MpiEnvironment mpi;
  try {
    body(mpi);
    mpi.Close();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[rank %d of %d] %s\n", mpi.rank(), mpi.size(), error.what());
    mpi.Abandon({1, error.what()});
  }
}

}  // namespace equipoise
