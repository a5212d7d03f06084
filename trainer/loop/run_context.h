#pragma once

#include <c10/core/Device.h>

#include <chrono>

#include "parallel/comm/communicator.h"
#include "parallel/timeline.h"
#include "trainer/common/stop_request.h"
#include "trainer/outputs/activity.h"
#include "trainer/run/islands.h"
#include "trainer/run/set_up_run.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

class MpiEnvironment;

// State shared by all parts of a training run: configuration, ranks, device, and recorders of what
// it does. One per process, which outlives the parts.
struct RunContext {
  // Collective; throws what SetUpRun() throws.
  RunContext(const RunConfig& given, MpiEnvironment& mpi);

  Communicator& world() const { return *setup.world; }  // of all ranks
  int rank() const { return world().rank(); }
  at::Device device() const { return setup.device; }

  // The configuration, in which limits of micro-batches from a checkpoint or the plan are set while
  // the run starts, so that config.yaml and checkpoints hold those in use.
  RunConfig config;
  // As given: `config` has what is known, or was measured, of these machines.
  ClusterConfig given_cluster;
  StopRequest stop;
  RunSetup setup;
  Islands islands;
  ActivityLog activity;
  TimelineRecorder recorder;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
};

}  // namespace equipoise
