#pragma once

#include <c10/core/Device.h>

#include <chrono>

#include "parallel/comm/communicator.h"
#include "parallel/timeline.h"
#include "trainer/common/stop_request.h"
#include "trainer/outputs/activity.h"
#include "trainer/run/set_up_run.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

class MpiEnvironment;

// State that all parts of a training run share: its configuration, the ranks and the device that it
// computes on, and its records. One a process; it outlives the parts.
struct RunContext {
  // Collective; throws what SetUpRun() throws.
  RunContext(const RunConfig& given, MpiEnvironment& mpi);

  Communicator& world() const { return *setup.world; }  // of all ranks
  int rank() const { return world().rank(); }
  at::Device device() const { return setup.device; }

  // Limits of micro-batches that a checkpoint or the plan has decided are entered while the run
  // starts: config.yaml and checkpoints hold what the run does.
  RunConfig config;
  StopRequest stop;
  RunSetup setup;
  ActivityLog activity;
  TimelineRecorder recorder;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
};

}  // namespace equipoise
