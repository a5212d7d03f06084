#pragma once

#include <cstdint>
#include <string>

#include "parallel/mesh.h"
#include "parallel/timeline.h"
#include "trainer/loop/replica.h"
#include "trainer/loop/run_context.h"
#include "trainer/loop/step_result.h"
#include "trainer/outputs/run_folder.h"

namespace equipoise {

// RUN/trace.json: the timeline of every rank in the first steps of a start (run.trace_steps), and
// below it the simulated one for the same micro-batches.
class RunTrace {
 public:
  explicit RunTrace(RunContext& context) : context_(context) {}

  // Starts the recorder, with all ranks' clocks aligned, after `step` steps. Collective.
  void Start(int64_t step);

  // Adds the simulation of the step that has just been run.
  void AddPredicted(const Replica& replica, const StepResult& step);
  // Ends the recording where it is due after `step`, the last one of this start or not. Returns the
  // trace of all ranks as the text of a JSON file on rank 0; empty elsewhere, and where it is not
  // due. Collective.
  std::string TakeIfDue(int64_t step, bool last);

 private:
  RunContext& context_;
  int64_t until_ = 0;  // step after which the trace is written; 0: none, or done
  Mesh mesh_;          // of the plan
  Timeline predicted_;
};

}  // namespace equipoise
