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

// The most ranks that compute on one GPU. Each rank may see its own GPU alone, under a number that
// others have for theirs (Slurm's --gpus-per-task), so GPUs are told apart by their place on the
// PCI bus. `machine`: MpiEnvironment::machine(). Collective; the same on every rank. Throws
// RunError.
int MostRanksPerGpu(Communicator& world, const CudaApi& cuda, int machine);

// Throws ConfigError for an NCCL that does not keep the order in which a rank launches operations
// of several communicators on its GPU (NCCL_LAUNCH_ORDER_IMPLICIT, which the program sets): ranks
// could wait for each other for ever. `version`: of ncclGetVersion().
void RequireLaunchOrder(int version);

// The group of all ranks, for CPU and GPU tensors.
struct DeviceWorld {
  std::unique_ptr<Communicator> world;
  std::string backend;    // of GPU tensors: "NCCL 2.28.9" or "pinned staging"
  int ranks_per_gpu = 1;  // the most that share one
};
// Replaces the world that MakeWorldCommunicator() has made by one that takes GPU tensors too, over
// NCCL where each rank of a machine has a GPU of its own, else staging through pinned memory.
// Tensors on the CPU keep their backend. `gpu`: this rank's device index. `nccl_library`: see
// LoadNcclApi(). Collective. Throws ConfigError when there is no GPU or no library, or
// one that RequireLaunchOrder() refuses.
DeviceWorld AddDevices(MpiEnvironment& environment, std::unique_ptr<Communicator> world,
                       const std::string& nccl_library, int gpu);

}  // namespace equipoise
