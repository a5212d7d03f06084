#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/loading/packing.h"
#include "trainer/loop/replica.h"
#include "trainer/loop/run_context.h"
#include "trainer/loop/run_data.h"
#include "trainer/loop/step_feed.h"
#include "trainer/loop/step_result.h"

namespace equipoise {

// Runs optimizer steps: this rank's micro-batches in the order of the plan's schedule, one
// reduction, one update. What it is given must outlive it.
class StepRunner {
 public:
  StepRunner(RunContext& context, const RunData& data, Replica& replica);

  // Begins to load micro-batches from there on, in threads.
  void Start(const DataPosition& position);
  // Step `number` (1-based) of the run. A step whose loss, gradients or weights would not be finite
  // is skipped, as Replica::guard tells. Collective. Throws AlreadyReportedError when mpirun is
  // ending the job. REQUIRES: Start().
  StepResult Run(int64_t number);

 private:
  // Sums of a step over micro-batches, and then over ranks.
  struct Sums {
    double loss = 0;    // already divided by the planned weight of the step's targets
    double weight = 0;  // of the targets that were there
    double bad_samples = 0;
    double stop_requests = 0;
    double busy_s = 0;       // seconds of compute in the passes; over ranks: the mean
    double data_wait_s = 0;  // over ranks: the longest; so are the others
    double span_s = 0;       // of the passes from begin to end
    double predicted_s = 0;
  };
  Sums RunMicroBatches(const StepBatches& batches, int64_t number, StepResult& result);
  void MeasurePasses(Sums& sums, StepResult& result) const;
  Sums AllReduce(const Sums& sums) const;
  void UpdateWeights(const StepBatches& batches, int64_t number, StepResult& result);
  // "train.jsonl:17" for each sample of a step.
  std::vector<std::string> SampleNames(const StepBatches& batches) const;

  RunContext& context_;
  const RunData& data_;
  Replica& replica_;
  std::unique_ptr<StepFeed> feed_;
};

}  // namespace equipoise
