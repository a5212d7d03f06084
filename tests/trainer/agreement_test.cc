#include "trainer/common/agreement.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
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

TEST_CASE("an error that says nothing of the data is none of it on any rank", "[agreement][cpu]") {
  struct Case {
    void (*fail)();
    bool of_data;
  };
  const Case each = GENERATE(Case{[] { throw DataError("torn"); }, true},
                             Case{[] { throw std::runtime_error("odd"); }, true},
                             Case{[] { throw ConfigError("missing"); }, true},
                             Case{[] { throw RunError("no place"); }, false},
                             Case{[] { throw std::bad_alloc(); }, false});
  const int bad = GENERATE(0, 1);
  const bool items = GENERATE(false, true);
  std::vector<int> codes(3, 0);
  std::vector<std::string> texts(3);
  RunRanks(3, [&](Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    const auto work = [&] {
      if (world.rank() == bad) each.fail();
    };
    try {
      const auto error = items ? AgreeOnItems(world, 3, [&](int64_t, const auto&) { work(); })
                               : AgreeOnDataError(world, work);
      texts[rank] = error.value_or("");
      AgreeOrThrowDataError(world, work);
    } catch (const UserError& error) {
      codes[rank] = static_cast<int>(error.code());
    }
    AgreeOrThrowDataError(world, [] {});  // the group goes on in step
  });
  CHECK(codes == std::vector<int>(3, each.of_data ? 4 : 5));
  CHECK(texts[0].empty() != each.of_data);
  CHECK(texts == std::vector<std::string>(3, texts[0]));
}

TEST_CASE("items are shared out, and the first that fails is the error of all ranks",
          "[agreement][cpu]") {
  const int ranks = GENERATE(1, 2, 5);
  const std::set<int64_t> bad = GENERATE(std::set<int64_t>{}, std::set<int64_t>{0},
                                         std::set<int64_t>{6}, std::set<int64_t>{3, 4, 5});
  const int64_t count = GENERATE(0, 1, 7);
  std::vector<std::string> texts(static_cast<size_t>(ranks));
  std::vector<int> doers(static_cast<size_t>(count), -1);
  RunRanks(ranks, [&](Communicator& world) {
    const auto error = AgreeOnItems(world, count, [&](int64_t item, const auto& alive) {
      doers[static_cast<size_t>(item)] = world.rank();
      alive();
      if (bad.contains(item)) throw std::runtime_error("item " + std::to_string(item));
    });
    texts[static_cast<size_t>(world.rank())] = error.value_or("none");
    AgreeOrThrowDataError(world, [] {});  // the group goes on in step
  });
  const bool any = !bad.empty() && *bad.begin() < count;
  const std::string expected = any ? "item " + std::to_string(*bad.begin()) : "none";
  CHECK(texts == std::vector<std::string>(static_cast<size_t>(ranks), expected));
  for (int64_t item = 0; item < count && !any; ++item)
    CHECK(doers[static_cast<size_t>(item)] == item % ranks);
}

TEST_CASE("no rank waits in vain for one with more items", "[agreement][cpu]") {
  std::vector<int> done(2);
  CommOptions options;
  options.timeout = std::chrono::milliseconds(800);
  RunRanks(
      2,
      [&](Communicator& world) {
        AgreeOnItems(world, 1, [&](int64_t, const auto& alive) {
          for (int part = 0; part < 16; ++part) {  // of a slow disk
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            alive();
          }
        });
        done[static_cast<size_t>(world.rank())] = 1;
      },
      options);
  CHECK(done == std::vector<int>{1, 1});
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
