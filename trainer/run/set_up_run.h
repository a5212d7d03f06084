#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "parallel/comm/communicator.h"
#include "trainer/run/parallel_model.h"
#include "trainer/settings/precision.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

class MpiEnvironment;

// Ranks, device and precision of a run, as `train`, `check`, `profile` and trials of plans set it
// up.
struct RunSetup {
  at::Device device;                    // of this rank
  Precision precision;                  // of the computation, the same on every rank
  std::unique_ptr<Communicator> world;  // of all ranks, for tensors on `device`
  std::vector<int> machines;            // of each rank, as MpiEnvironment::machine() counts them
  std::vector<std::string> hosts;       // names of these machines, of each rank
};

// Opens this rank's device and connects the ranks: threads and determinism as SetUpCompute() says,
// waits that end after parallel.timeout_s. `config.cluster` becomes that of this
// machine, where it is `local` (UseGpu(), UseMachines()).
// Collective, once a process. Throws ConfigError where ranks run other programs, have other
// configurations or other kinds of devices, and what OpenComputeDevice() throws.
RunSetup SetUpRun(RunConfig& config, MpiEnvironment& mpi);

// For this process: compute threads, train.threads or the cores of the machine divided by its
// ranks; with train.deterministic operations whose result depends on the order of threads throw.
void SetUpCompute(const TrainSection& train, int ranks_on_this_machine);

CommOptions CommOptionsOf(const ParallelSection& parallel);

// How the run's model is spread over its ranks, beside the plan.
ParallelModel::Options ModelOptionsOf(const RunConfig& config, const RunSetup& setup);

// Throws ConfigError that names a rank whose `mine` differs from rank 0's, and the keys that do:
// ranks that were given different things would wait for each other for ever. Collective.
void RequireEqual(Communicator& world, const std::string& what, const Json& mine);

}  // namespace equipoise
