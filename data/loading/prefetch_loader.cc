#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "data/loading/loader.h"

namespace equipoise {

// Threads draw numbered packs from `next` and store each loaded pack under its number; Next() takes
// them in the order of the numbers.
struct PrefetchLoader::Impl {
  struct Result {
    LoadedPack pack;
    std::exception_ptr failure;
  };

  const Dataset* dataset;
  std::function<LoadRequest()> next;
  int64_t prefetch;
  at::Device device;

  Impl(const Dataset* from, std::function<LoadRequest()> packs, int64_t ahead, at::Device to)
      : dataset(from), next(std::move(packs)), prefetch(ahead), device(to) {}

  std::mutex drawing;  // held while `next` runs
  std::mutex mutex;    // guards all below
  std::condition_variable changed;
  std::map<int64_t, Result> results;
  int64_t drawn = 0, taken = 0;
  bool ended = false;                 // `next` threw, or the loader is being destroyed
  std::vector<std::jthread> threads;  // last: joined before the members above are destroyed

  bool WaitForRoom() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ended || drawn - taken < prefetch; });
    return !ended;
  }

  void Put(int64_t number, Result result) {
    const std::lock_guard lock(mutex);
    results.emplace(number, std::move(result));
    changed.notify_all();
  }

  // The next pack and its number; nothing when there will be none.
  std::optional<std::pair<int64_t, LoadRequest>> Draw() {
    const std::lock_guard order(drawing);
    if (!WaitForRoom()) return std::nullopt;
    try {
      LoadRequest request = next();
      const std::lock_guard lock(mutex);
      return std::pair(drawn++, std::move(request));
    } catch (...) {
      const std::lock_guard lock(mutex);
      results[drawn].failure = std::current_exception();
      ended = true;
      changed.notify_all();
      return std::nullopt;
    }
  }

  void Work() {
    while (auto work = Draw()) {
      Result result;
      try {
        result.pack = dataset->Load(work->second.pack, work->second.pictures);
        result.pack.batch = PinnedFor(std::move(result.pack.batch), device);
      } catch (...) {
        result.failure = std::current_exception();
      }
      Put(work->first, std::move(result));
    }
  }
};

PrefetchLoader::PrefetchLoader(const Dataset* dataset, std::function<LoadRequest()> next,
                               int64_t threads, int64_t prefetch, at::Device device)
    : impl_(std::make_unique<Impl>(dataset, std::move(next), prefetch, device)) {
  for (int64_t i = 0; i < threads; ++i) impl_->threads.emplace_back([this] { impl_->Work(); });
}

PrefetchLoader::~PrefetchLoader() {
  const std::lock_guard lock(impl_->mutex);
  impl_->ended = true;
  impl_->changed.notify_all();
}

LoadedPack PrefetchLoader::Next() {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [&] { return impl_->results.contains(impl_->taken); });
  auto found = impl_->results.find(impl_->taken);
  // A failure is kept: every further call throws it again.
  if (found->second.failure) std::rethrow_exception(found->second.failure);
  LoadedPack pack = std::move(found->second.pack);
  impl_->results.erase(found);
  ++impl_->taken;
  impl_->changed.notify_all();
  return pack;
}

}  // namespace equipoise
