#pragma once

#include <mpi.h>

#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/comm/transport.h"

namespace equipoise {

// Copies of MPI_COMM_WORLD, so that signs of life and data never meet.
struct MpiChannels {
  MPI_Comm data = MPI_COMM_NULL;
  MPI_Comm control = MPI_COMM_NULL;
};
// Collective over MPI_COMM_WORLD.
MpiChannels OpenMpiChannels();

// Moves the bytes of CPU tensors with MPI's point-to-point calls. Not collective.
// REQUIRES: MPI_THREAD_SERIALIZED at least; MPI is finalised only after this object's end.
std::unique_ptr<Transport> MakeMpiTransport(const MpiChannels& channels,
                                            const CommOptions& options);

// Throws RunError with MPI's text when `code` is an error; `call` names what was tried.
void CheckMpi(int code, const char* call);

}  // namespace equipoise
