#include "balance/groups/epoch_windows.h"

#include <algorithm>
#include <utility>

#include "balance/load/permutation.h"
#include "balance/load/random.h"

namespace equipoise {
namespace {

constexpr uint64_t kSampleOrder = 5;  // purpose of the random stream

}  // namespace

EpochWindows::EpochWindows(SampleList samples, const GroupOptions& groups, const Options& options)
    : samples_(std::move(samples)), options_(groups), stream_(options) {}

// Collects the samples that were carried over, and the next in the epoch's order until the window
// is full. Sizes are read in the order of the list, which is fastest for an index on disk.
std::vector<SampleSize> EpochWindows::Gather() {
  std::vector<int64_t> carried;
  carried.reserve(groups_.carried.size());
  for (const int64_t i : groups_.carried) carried.push_back(places_[static_cast<size_t>(i)]);
  places_ = std::move(carried);
  const bool whole = stream_.window == 0 || stream_.window >= samples_.size;
  const Permutation order(
      samples_.size,
      KeyedRandom(options_.seed, static_cast<uint64_t>(stream_.epoch), kSampleOrder));
  while (next_ < samples_.size && (whole || std::ssize(places_) < stream_.window)) {
    places_.push_back(whole ? next_ : order(next_));
    ++next_;
  }
  if (!whole) std::sort(places_.begin(), places_.end());
  last_ = next_ == samples_.size;
  std::vector<SampleSize> sizes;
  sizes.reserve(places_.size());
  std::erase_if(places_, [&](int64_t place) {
    const std::optional<SampleSize> size = samples_.size_at(place);
    if (size) sizes.push_back(*size);
    return !size;
  });
  return sizes;
}

bool EpochWindows::Next() {
  if (last_) return false;
  begin_ = end();
  const std::vector<SampleSize> sizes = Gather();
  const int64_t batch = options_.global_batch;
  // Groups that the open step lacks.
  const int64_t head = ((stream_.head - begin_) % batch + batch) % batch;
  groups_ = PlanWindow(sizes, options_, {stream_.epoch, number_++, head, last_});
  return true;
}

EpochSummary SummarizeEpoch(EpochWindows windows, int64_t data_ranks,
                            const std::function<void(const EpochWindows&)>& each) {
  EpochSummary summary;
  EpochMeter meter(windows.options(), data_ranks);
  while (windows.Next()) {
    const EpochGroups& part = windows.groups();
    summary.groups += part.size();
    summary.samples += part.groups.num_samples();
    summary.oversize += std::ssize(part.oversize);
    meter.Add(part);
    if (each) each(windows);
  }
  summary.balance = meter.Finish();
  return summary;
}

}  // namespace equipoise
