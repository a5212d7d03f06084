#include "parallel/pipeline/plan_agreement.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/passes.h"
#include "tests/parallel/run_ranks.h"

namespace equipoise {
namespace {

constexpr int kRanks = 4;  // two data ranks of two pipeline ranks

Schedule PlannedFor(int micro_batches) {
  return CompleteSchedule(Build1F1B(ChainGraph({0, 1}), micro_batches), StepWork(),
                          SimulationCosts());
}

// What each rank throws; empty when it agrees.
std::vector<std::string> Agree(const std::vector<Schedule>& schedules,
                               const std::vector<std::string>& packs) {
  std::vector<std::string> texts(kRanks);
  RunRanks(kRanks, [&](Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    StableHash hash;
    hash.Add(packs[rank]);
    StepFingerprint step;
    step.hash = hash.value();
    step.items = [&] { return std::vector<PlanItem>{{"pack 0", packs[rank]}}; };
    step.schedule = &schedules[rank];
    step.data_rank = world.rank() / 2;
    try {
      RequireSamePlan(step, world);
    } catch (const ConfigError& error) {
      texts[rank] = error.what();
    }
  });
  return texts;
}

TEST_CASE("data ranks may have schedules of their own", "[parallel][cpu]") {
  const Schedule a = PlannedFor(4), b = PlannedFor(3);
  CHECK(Agree({a, a, b, b}, {"x", "x", "x", "x"}) == std::vector<std::string>(kRanks));
}

TEST_CASE("ranks of one pipeline with different schedules are named", "[parallel][cpu]") {
  const Schedule a = PlannedFor(4), b = PlannedFor(3);
  Schedule other = b;
  std::swap(other.ranks[0][0], other.ranks[0][1]);
  const std::vector<std::string> texts = Agree({a, a, b, other}, {"x", "x", "x", "x"});
  for (const std::string& text : texts) {
    CHECK(text.find("the plan of this step: rank 2 and rank 3 differ first in 'schedule of data "
                    "rank 1") == 0);
    CHECK(text == texts[0]);
  }
}

TEST_CASE("ranks with different data are named", "[parallel][cpu]") {
  const Schedule a = PlannedFor(2);
  const std::vector<std::string> texts = Agree({a, a, a, a}, {"7 9", "7 9", "7 8", "7 9"});
  for (const std::string& text : texts) {
    CHECK(
        text ==
        "the plan of this step: rank 0 and rank 2 differ first in 'pack 0': 7 9 / 7 8; give every "
        "rank the same configuration, data and program");
  }
}

}  // namespace
}  // namespace equipoise
