#include "parallel/comm/bell.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

namespace equipoise {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Longer than any test may take: a sleep of this length that ends was ended by the bell.
constexpr auto kForEver = std::chrono::hours(10);

TEST_CASE("a sleep ends at its limit") {
  Bell bell;
  for (const auto limit : {0us, 1us, 3000us}) {
    const auto start = Clock::now();
    bell.Sleep(limit);
    CHECK(Clock::now() - start >= limit);
  }
}

TEST_CASE("another thread ends a sleep before its limit") {
  Bell bell;
  std::atomic<bool> awake{false};
  std::thread sleeper([&] {
    bell.Sleep(kForEver);
    awake = true;
  });
  std::this_thread::sleep_for(5ms);
  CHECK_FALSE(awake);
  bell.Ring();
  sleeper.join();
}

TEST_CASE("a bell that rings before the sleep ends it, and no other") {
  Bell bell;
  bell.Ring();
  bell.Ring();
  bell.Sleep(kForEver);
  const auto start = Clock::now();
  bell.Sleep(10ms);
  CHECK(Clock::now() - start >= 10ms);
}

}  // namespace
}  // namespace equipoise
