#pragma once

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi_environment.h"
#include "parallel/comm/nccl_api.h"

namespace equipoise {

// Makes the group of all ranks, for CPU tensors: over MPI under mpirun, else a world of one. Called
// once; destroy it before MpiEnvironment::Close().
std::unique_ptr<Communicator> MakeWorldCommunicator(MpiEnvironment& environment,
                                                    const CommOptions& options);

// Whether two ranks compute on one GPU. Each rank may see its own GPU alone, under a number that
// others have for theirs (Slurm's --gpus-per-task), so they are told apart by their place on the
// PCI bus. `machine`: MpiEnvironment::machine(). Collective; the same on every rank. Throws
// RunError.
bool SomeShareGpu(Communicator& world, const CudaApi& cuda, int machine);

// Throws ConfigError for an NCCL that does not keep the order in which a rank launches operations
// of several communicators on its GPU (NCCL_LAUNCH_ORDER_IMPLICIT, which the program sets): ranks
// could wait for each other for ever. `version`: of ncclGetVersion().
void RequireLaunchOrder(int version);

// The group of all ranks, for CPU and GPU tensors, and the name of the backend of the latter.
struct DeviceWorld {
  std::unique_ptr<Communicator> world;
  std::string backend;  // "NCCL 2.28.9" or "pinned staging"
};
// Replaces the world that MakeWorldCommunicator() has made by one that takes GPU tensors too, over
// NCCL where each rank of a machine has a GPU of its own, else staging through pinned memory.
// Tensors on the CPU keep their backend. `gpu`: this rank's device index. `nccl_library`: see
// LoadNcclApi(). Collective. Throws ConfigError when there is no GPU or no library, or
// one that RequireLaunchOrder() refuses.
DeviceWorld AddDevices(MpiEnvironment& environment, std::unique_ptr<Communicator> world,
                       const std::string& nccl_library, int gpu);

}  // namespace equipoise
