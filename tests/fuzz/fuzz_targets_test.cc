#include "tests/fuzz/fuzz_targets.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <random>

namespace equipoise {
namespace {

// Damages `bytes` in one to four places.
std::string Mutated(std::string bytes, const FuzzTarget& target, std::mt19937& random) {
  const auto below = [&](size_t bound) { return bound == 0 ? 0 : random() % bound; };
  for (uint32_t changes = 1 + random() % 4; changes > 0; --changes) {
    const size_t at = below(bytes.size() + 1);
    switch (random() % 6) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random());
        break;
      case 2:
        bytes.insert(at, target.words[below(target.words.size())]);
        break;
      case 3:
        bytes.erase(at, 1 + below(16));
        break;
      case 4:
        bytes.insert(below(bytes.size() + 1), bytes.substr(at, below(64)));
        break;
      default:
        bytes.resize(at);
    }
  }
  return bytes;
}

// Files that once were of use: tests/fuzz/seeds/TARGET/NAME.
TEST_CASE("kept seeds are read or refused, never worse", "[fuzz][cpu]") {
  namespace fs = std::filesystem;
  const std::vector<FuzzTarget>& targets = FuzzTargets();
  int64_t files = 0;
  for (const auto& folder : fs::directory_iterator("tests/fuzz/seeds")) {
    INFO(folder.path());
    const auto target = std::find_if(targets.begin(), targets.end(), [&](const FuzzTarget& each) {
      return each.name == folder.path().filename();
    });
    REQUIRE(target != targets.end());
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      INFO(entry.path());
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      CHECK_NOTHROW(target->run(bytes));
      ++files;
    }
  }
  CHECK(files > 20);
}

TEST_CASE("damaged input of every kind is read or refused, never worse", "[fuzz][cpu]") {
  constexpr int kMutations = 3000;
  for (const FuzzTarget& target : FuzzTargets()) {
    INFO(target.name);
    std::mt19937 random(20);
    for (const std::string& seed : target.seeds) CHECK_NOTHROW(target.run(seed));
    for (int i = 0; i < kMutations; ++i) {
      const std::string bytes =
          Mutated(target.seeds[random() % target.seeds.size()], target, random);
      try {
        target.run(bytes);
      } catch (const std::exception& error) {
        FAIL(error.what() << " by\n" << bytes.substr(0, 2000));
      }
    }
  }
}

}  // namespace
}  // namespace equipoise
