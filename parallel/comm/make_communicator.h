#pragma once

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi_environment.h"

namespace equipoise {

// The group of all ranks, for CPU tensors: over MPI under mpirun, else a world of one. Called
// once; end it before MpiEnvironment::Close().
std::unique_ptr<Communicator> MakeWorldCommunicator(MpiEnvironment& environment,
                                                    const CommOptions& options);

// The same group for tensors on GPUs too: over NCCL where each rank of a machine has a GPU of its
// own, else staged through pinned memory. Collective. Tensors on the CPU keep their backend.
struct DeviceWorld {
  std::unique_ptr<Communicator> world;
  std::string backend;  // "NCCL 2.28.9" or "pinned staging"
};
// `gpu`: this rank's. `nccl_library`: see LoadNcclApi(). Throws ConfigError when there is no GPU or
// no library.
DeviceWorld AddDevices(MpiEnvironment& environment, std::unique_ptr<Communicator> world,
                       const std::string& nccl_library, int gpu);

}  // namespace equipoise
