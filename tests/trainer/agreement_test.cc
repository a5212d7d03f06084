#include "trainer/common/agreement.h"

#include <catch2/catch.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "tests/parallel/run_ranks.h"

namespace equipoise {
namespace {

TEST_CASE("an error on some ranks is one error on all", "[agreement][cpu]") {
  const int ranks = GENERATE(1, 2, 5);
  const int first_bad = GENERATE(0, 1, 4);
  if (first_bad >= ranks) return;
  std::vector<std::string> texts(static_cast<size_t>(ranks));
  RunRanks(ranks, [&](Communicator& world) {
    try {
      AgreeOrThrowRunError(world, [&] {
        if (world.rank() < first_bad) return;
        throw std::runtime_error("disk of rank " + std::to_string(world.rank()) + " is full");
      });
    } catch (const RunError& error) {
      texts[static_cast<size_t>(world.rank())] = error.what();
    }
    AgreeOrThrowDataError(world, [] {});  // the group goes on in step
  });
  for (const std::string& text : texts) {
    CHECK(text == "disk of rank " + std::to_string(first_bad) + " is full");
  }
}

TEST_CASE("a text travels from its rank to all", "[agreement][cpu]") {
  const std::string text = GENERATE(std::string(), std::string("x"), std::string(5000, 'y'));
  std::vector<std::string> got(3);
  RunRanks(3, [&](Communicator& world) {
    const std::string mine = world.rank() == 1 ? text : "not this";
    got[static_cast<size_t>(world.rank())] = BroadcastText(world, mine, /*root=*/1);
  });
  CHECK(got == std::vector<std::string>(3, text));
}

}  // namespace
}  // namespace equipoise
