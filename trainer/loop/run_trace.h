#pragma once

#include <cstdint>
#include <string>

#include "parallel/timeline.h"
#include "trainer/loop/replica.h"
#include "trainer/loop/run_context.h"
#include "trainer/loop/step_result.h"
#include "trainer/outputs/run_folder.h"

namespace equipoise {

// RUN/trace.json: what every rank did in the first steps of a start (run.trace_steps), and below it
// what the simulator says of the same micro-batches.
class RunTrace {
 public:
  explicit RunTrace(RunContext& context) : context_(context) {}

  // Starts the recorder, all ranks' clocks at one moment; `step` steps are done. Collective.
  void Start(int64_t step);

  // Adds the simulated step beside the one that has just been run.
  void AddPredicted(const Replica& replica, const StepResult& step);
  // After a step, the last one of this start or not: ends the recording where it is due; the trace
  // of all ranks, as the text of a JSON file, on rank 0, else empty. Collective.
  std::string TakeIfDue(int64_t step, bool last);

 private:
  RunContext& context_;
  int64_t until_ = 0;  // step after which the trace is written; 0: none, or done
  Timeline predicted_;
};

}  // namespace equipoise
