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

// The device, precision and ranks of a run, for `train`, `check`, `profile` and trials of plans.
struct RunSetup {
  at::Device device;                    // device of this rank
  Precision precision;                  // precision of the computation, equal on every rank
  std::unique_ptr<Communicator> world;  // all ranks, for tensors on `device`
  std::vector<int> machines;            // machine of each rank, by MpiEnvironment::machine()
  std::vector<std::string> hosts;       // host name of each rank
  int ranks_per_gpu = 1;                // the most that share a GPU
};

// Opens this rank's device, calls SetUpCompute() and connects the ranks, with parallel.timeout_s as
// the timeout of every wait. A `config.cluster` of preset `local` is replaced by that of these
// machines (UseGpu(), UseMachines()). Collective, once per process. Throws ConfigError when ranks
// have different programs, configurations or kinds of devices, and as OpenComputeDevice() and
// CheckMaster() do.
RunSetup SetUpRun(RunConfig& config, MpiEnvironment& mpi);

// Sets this process's number of compute threads, train.threads or one for each of the `processors`
// for this rank (MpiEnvironment::processors()), and train.deterministic, with which operations
// throw whose result depends on the order of threads.
void SetUpCompute(const TrainSection& train, int64_t processors);

CommOptions CommOptionsOf(const ParallelSection& parallel);

// The options of a run's ParallelModel.
ParallelModel::Options ModelOptionsOf(const RunConfig& config, const RunSetup& setup);

// Throws ConfigError that names a rank whose `value` differs from rank 0's, and the differing keys,
// as ranks that disagree would deadlock later. `what` names the value. Collective.
void RequireEqual(Communicator& world, const std::string& what, const Json& value);

}  // namespace equipoise
