#pragma once

#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi_environment.h"

namespace equipoise {

// The group of all ranks, for CPU tensors: over MPI under mpirun, else a world of one. Called
// once; end it before MpiEnvironment::Close().
std::unique_ptr<Communicator> MakeWorldCommunicator(MpiEnvironment& environment,
                                                    const CommOptions& options);

}  // namespace equipoise
