#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "data/loading/loader.h"
#include "data/loading/packing.h"

namespace equipoise {

// The data of one optimizer step.
struct FeedStep {
  StepBatches plan;
  DataPosition after;  // in the data, once the step is done
};

// Source of the steps' batches, which loads this data rank's packs ahead of time. Micro-batch m of
// data rank r is pack m * data_ranks + r of the step.
class StepFeed {
 public:
  struct Options {
    int data_rank = 0;
    int data_ranks = 1;
    int64_t threads = 1;
    int64_t prefetch = 4;
    at::Device device = at::kCPU;  // the packs are for
    // Of a step's packs of this data rank, those whose pictures this rank needs; called by the
    // loader's threads, one at a time. Empty: all.
    std::function<std::vector<bool>(const std::vector<Pack>& packs)> pictures;
  };
  // REQUIRES: the planner's global batch is a multiple of data_ranks. `dataset` must outlive it.
  StepFeed(const Dataset* dataset, EpochPacker planner, DataPosition start, const Options& options);
  ~StepFeed();

  // The next step. LoadPack() then returns its micro-batches, in order.
  FeedStep NextStep();
  LoadedPack LoadPack();
  // The options by which steps are formed; constant.
  const GroupOptions& groups() const { return planner_.groups(); }

 private:
  LoadRequest NextPack();  // called by the loader's threads
  void PlanOneStep();      // REQUIRES: mutex_ is held

  Options options_;
  std::mutex mutex_;
  EpochPacker planner_;
  DataPosition position_;  // after the last step planned
  std::deque<FeedStep> steps_;
  std::deque<LoadRequest> packs_;           // of this data rank, planned and not yet loading
  std::unique_ptr<PrefetchLoader> loader_;  // last: its threads use the rest
};

}  // namespace equipoise
