#pragma once

#include <mpi.h>

#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/comm/transport.h"

namespace equipoise {

// Duplicates of MPI_COMM_WORLD, which keep heartbeats and data apart.
struct MpiChannels {
  MPI_Comm data = MPI_COMM_NULL;
  MPI_Comm control = MPI_COMM_NULL;
};
// Collective over MPI_COMM_WORLD.
MpiChannels OpenMpiChannels();

// Makes a transport of MPI's point-to-point calls. Not collective. REQUIRES: MPI_THREAD_SERIALIZED
// at least; MPI is finalized only after this object's end.
std::unique_ptr<Transport> MakeMpiTransport(const MpiChannels& channels,
                                            const CommOptions& options);

// Throws RunError with MPI's text when `code` is an error; `call` names the MPI function.
void CheckMpi(int code, const char* call);

}  // namespace equipoise
