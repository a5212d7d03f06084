#include "parallel/comm/sleep_timer.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

namespace equipoise {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Longer than any test may take: a sleep of this length that ends was woken.
constexpr auto kForEver = std::chrono::hours(10);

TEST_CASE("a sleep ends at its limit") {
  SleepTimer timer;
  for (const auto limit : {0us, 1us, 3000us}) {
    const auto start = Clock::now();
    timer.Sleep(limit);
    CHECK(Clock::now() - start >= limit);
  }
}

TEST_CASE("another thread ends a sleep before its limit") {
  SleepTimer timer;
  std::atomic<bool> awake{false};
  std::thread sleeper([&] {
    timer.Sleep(kForEver);
    awake = true;
  });
  while (!awake) {
    timer.WakeIn(100us);
    std::this_thread::sleep_for(1ms);
  }
  sleeper.join();
}

TEST_CASE("a waking that comes before the sleep is kept for it, and for no other") {
  SleepTimer timer;
  timer.WakeIn(0us);
  timer.Sleep(kForEver);
  timer.WakeIn(2ms);
  auto start = Clock::now();
  timer.Sleep(kForEver);
  CHECK(Clock::now() - start < kForEver);
  start = Clock::now();
  timer.Sleep(10ms);
  CHECK(Clock::now() - start >= 10ms);
}

TEST_CASE("a waking is put off by a later one, up to the limit") {
  SleepTimer timer;
  timer.WakeIn(0us);
  timer.WakeIn(kForEver);
  auto start = Clock::now();
  timer.Sleep(10ms);
  CHECK(Clock::now() - start >= 10ms);

  // While it sleeps: the first waking would come after 200 ms, the one that replaces it after more.
  std::atomic<bool> awake{false};
  start = Clock::now();
  timer.WakeIn(200ms);
  std::thread sleeper([&] {
    timer.Sleep(kForEver);
    awake = true;
  });
  std::this_thread::sleep_for(20ms);
  const bool in_time = !awake;
  timer.WakeIn(400ms);
  sleeper.join();
  if (in_time) CHECK(Clock::now() - start >= 400ms);
}

}  // namespace
}  // namespace equipoise
