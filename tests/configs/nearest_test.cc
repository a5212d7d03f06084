#include "configs/base/nearest.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace equipoise {
namespace {

TEST_CASE("the nearest name is found within one edit per three characters") {
  const std::vector<std::string> names = {"steps", "seed", "lr", "global_batch", "beta1", "beta2"};
  CHECK(NearestName("step", names) == "steps");
  CHECK(NearestName("setps", names) == "steps");
  CHECK(NearestName("stepz", names) == "steps");
  CHECK(NearestName("seeed", names) == "seed");
  CHECK(NearestName("rl", names) == "lr");
  CHECK(NearestName("globalbatch", names) == "global_batch");
  CHECK(NearestName("beta", names) == "beta1");
  CHECK(NearestName("epochs", names).empty());
  CHECK(NearestName("2bw", {"1f1b", "pipedream_2bw"}) == "pipedream_2bw");
  CHECK(NearestName("batch", {"global_batch", "micro_batch"}).empty());  // of both
  CHECK(NearestName("ed", {"weighted_sum"}).empty());
  CHECK(NearestName("", names).empty());
  CHECK(NearestName("steps", {}).empty());
  CHECK(NearestName(std::string(100000, 's'), names).empty());
}

}  // namespace
}  // namespace equipoise
