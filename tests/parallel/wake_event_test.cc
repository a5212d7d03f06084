#include "parallel/comm/wake_event.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

namespace equipoise {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Longer than any test may take: a sleep of this length that ends was ended by the event.
constexpr auto kForEver = std::chrono::hours(10);

TEST_CASE("a sleep ends at its limit") {
  WakeEvent wake_event;
  for (const auto limit : {0us, 1us, 3000us}) {
    const auto start = Clock::now();
    wake_event.Sleep(limit);
    CHECK(Clock::now() - start >= limit);
  }
}

TEST_CASE("another thread ends a sleep before its limit") {
  WakeEvent wake_event;
  std::atomic<bool> awake{false};
  std::thread sleeper([&] {
    wake_event.Sleep(kForEver);
    awake = true;
  });
  std::this_thread::sleep_for(5ms);
  CHECK_FALSE(awake);
  wake_event.Notify();
  sleeper.join();
}

TEST_CASE("a notification before the sleep ends it, and no other") {
  WakeEvent wake_event;
  wake_event.Notify();
  wake_event.Notify();
  wake_event.Sleep(kForEver);
  const auto start = Clock::now();
  wake_event.Sleep(10ms);
  CHECK(Clock::now() - start >= 10ms);
}

}  // namespace
}  // namespace equipoise
