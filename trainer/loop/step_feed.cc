#include "trainer/loop/step_feed.h"

#include <utility>

namespace equipoise {

StepFeed::StepFeed(const Dataset* dataset, EpochPacker planner, DataPosition start,
                   const Options& options)
    : options_(options), planner_(std::move(planner)), position_(start) {
  loader_ = std::make_unique<PrefetchLoader>(
      dataset, [this] { return NextPack(); }, options.threads, options.prefetch, options.device);
}

StepFeed::~StepFeed() = default;

FeedStep StepFeed::NextStep() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (steps_.empty()) PlanOneStep();
  FeedStep work = std::move(steps_.front());
  steps_.pop_front();
  return work;
}

LoadedPack StepFeed::LoadPack() { return loader_->Next(); }

LoadRequest StepFeed::NextPack() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (packs_.empty()) PlanOneStep();
  LoadRequest request = std::move(packs_.front());
  packs_.pop_front();
  return request;
}

void StepFeed::PlanOneStep() {
  FeedStep work;
  work.plan = planner_.Next(position_);
  work.after = position_;
  std::vector<Pack> packs;
  for (size_t i = static_cast<size_t>(options_.data_rank); i < work.plan.packs.size();
       i += static_cast<size_t>(options_.data_ranks)) {
    packs.push_back(work.plan.packs[i]);
  }
  const std::vector<bool> pictures =
      options_.pictures ? options_.pictures(packs) : std::vector<bool>(packs.size(), true);
  for (size_t i = 0; i < packs.size(); ++i) packs_.push_back({packs[i], pictures[i]});
  steps_.push_back(std::move(work));
}

}  // namespace equipoise
