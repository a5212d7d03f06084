// Bubbles are taken from a list whose front has room to grow: as from a plain one.

#include "parallel/schedule/free_time.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

namespace equipoise {
namespace {

struct Busy {
  double start_s = 0, end_s = 0;
};

// The first time from `earliest` at which nothing of `busy`, in any order, overlaps `seconds`.
double FirstFree(const std::vector<Busy>& busy, double earliest, double seconds) {
  double start = earliest;
  for (bool moved = true; moved;) {
    moved = false;
    for (const Busy& each : busy) {
      if (each.start_s >= start + seconds || each.end_s <= start) continue;
      start = each.end_s;
      moved = true;
    }
  }
  return start;
}

TEST_CASE("free time is what is not taken, at a lead too", "[free_time][cpu]") {
  std::mt19937 random(11);
  std::uniform_int_distribution<int> gap(0, 3), length(1, 4), lead(0, 9), at(0, 400);
  FreeTime free({}, {}, 0, false);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> starts, ends;
    for (double time = 0; starts.size() < 60;) {
      starts.push_back(time += gap(random));
      ends.push_back(time += length(random));
    }
    const double later = lead(random);
    std::vector<Busy> busy;
    for (size_t i = 0; i < starts.size(); ++i) busy.push_back({starts[i] + later, ends[i] + later});
    // Half of them with the bubbles left out that are too short for all that is asked for.
    const double shortest = round / 2 % 2 == 0 ? 0.5 : 1.5;
    free.SetLater(FreeTime(starts, ends, 0, /*ends_alone=*/false, round < 100 ? shortest : 0),
                  later);
    for (int taken = 0; taken < 80; ++taken) {
      const double earliest = round % 2 == 0 ? at(random) / 4.0 : at(random);
      const double seconds = shortest + gap(random);
      const double start = free.Find(earliest, seconds, 0);
      REQUIRE(start == FirstFree(busy, earliest, seconds));
      free.Take(start, seconds);
      busy.push_back({start, start + seconds});
    }
  }
}

}  // namespace
}  // namespace equipoise
