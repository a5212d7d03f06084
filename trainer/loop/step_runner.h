#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/loading/loader.h"
#include "data/loading/packing.h"
#include "trainer/loop/replica.h"
#include "trainer/loop/run_context.h"
#include "trainer/loop/run_data.h"
#include "trainer/loop/step_feed.h"
#include "trainer/loop/step_result.h"

namespace equipoise {

// Runs optimizer steps: this rank's micro-batches in the order of the plan's schedule, one
// reduction, one update. `context`, `data` and `replica` must outlive the runner.
class StepRunner {
 public:
  StepRunner(RunContext& context, const RunData& data, Replica& replica);

  // Begins to load the micro-batches after `position`, in threads.
  void Start(const DataPosition& position);
  // Runs step `number` (1-based). A step whose loss, gradients or weights would not be finite is
  // skipped, see Replica::guard; in fp16 one whose gradients have overflowed lowers the scale of
  // the loss instead, as long as that can be lowered. Collective. Throws AlreadyReportedError when
  // mpirun is ending the job. REQUIRES: Start().
  StepResult Run(int64_t number);

 private:
  // Sums of a step over micro-batches, then over ranks.
  struct Sums {
    double loss = 0;              // already divided by the planned weight of the step's targets
    std::vector<double> weights;  // of the targets present, by island
    double bad_samples = 0;
    double bad_before = 0;  // on ranks without the loss
    double stop_requests = 0;
    double busy_s = 0;       // seconds of compute in the passes; over ranks: the mean
    double data_wait_s = 0;  // over ranks: the maximum; likewise of the fields below
    double span_s = 0;       // of the passes from start to end
    double predicted_s = 0;
  };
  bool EncodesAhead() const;  // a step
  bool RunsAhead() const;     // the encoder, or passes of all stages
  // The weight of the targets that this rank's island is to train on.
  double IslandWeight(const StepBatches& batches) const;
  Sums RunMicroBatches(const StepBatches& batches, int64_t number, StepResult& result);
  // Waits for the next pack of this data rank, in step `number` or ahead of it.
  void LoadPack(int64_t number, Sums& sums);
  // Agrees on the bad samples of a pack with the ranks that work on it too: Pass::settle.
  bool Settle(const StepBatches& batches, int place);
  // Drops the packs of a step that is done. Those of the next one, whose pictures have been encoded
  // already, stay.
  void DropPacks();
  void MeasurePasses(Sums& sums, StepResult& result) const;
  Sums AllReduce(const Sums& sums) const;
  bool HasMissed(int64_t number, StepResult& result) const;
  void UpdateWeights(const StepBatches& batches, int64_t number, StepResult& result);
  bool LowerScale(int64_t number, const StepResult& result);
  // "FILE:LINE" of each sample of a step, such as "train.jsonl:17".
  std::vector<std::string> SampleNames(const StepBatches& batches) const;

  RunContext& context_;
  const RunData& data_;
  Replica& replica_;
  std::unique_ptr<StepFeed> feed_;
  std::optional<FeedStep> next_;   // the step after this one, where this one encodes for it
  std::vector<BadSample> unread_;  // of the step's packs, on this rank
  std::deque<LoadedPack> packs_;   // of this step, then of the next one
  std::optional<std::chrono::steady_clock::time_point> ended_;  // the step before
};

}  // namespace equipoise
