#include "parallel/intra_op.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace equipoise {
namespace {

TEST_CASE("a loop is shared by LibTorch's threads, each index once", "[parallel]") {
  at::set_num_threads(3);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::vector<int> times(100, 0);
  IntraOpFor(0, 100, 10, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) ++times[static_cast<size_t>(i)];
    const std::scoped_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  CHECK(threads.size() == 3);
  CHECK(times == std::vector<int>(100, 1));
}

TEST_CASE("a loop no longer than its grain, and one within another, stay in their thread",
          "[parallel]") {
  at::set_num_threads(3);
  const auto caller = std::this_thread::get_id();
  IntraOpFor(5, 15, 10, [&](int64_t from, int64_t to) {
    CHECK(std::pair(from, to) == std::pair<int64_t, int64_t>(5, 15));
    CHECK(std::this_thread::get_id() == caller);
  });
  std::atomic<int> strayed = 0;  // Catch's macros are for one thread
  IntraOpFor(0, 3, 1, [&](int64_t, int64_t) {
    const auto outer = std::this_thread::get_id();
    IntraOpFor(0, 100, 1, [&](int64_t, int64_t) {
      if (std::this_thread::get_id() != outer) ++strayed;
    });
  });
  CHECK(strayed == 0);
}

TEST_CASE("an exception of a body is thrown in the calling thread", "[parallel]") {
  at::set_num_threads(2);
  const auto fail = [](int64_t, int64_t) { throw std::runtime_error("body"); };
  CHECK_THROWS_WITH(IntraOpFor(0, 100, 1, fail), "body");
}

}  // namespace
}  // namespace equipoise
