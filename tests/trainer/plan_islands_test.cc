#include <catch2/catch.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "tests/trainer/plan_case.h"
#include "trainer/planner/plan_run.h"

namespace equipoise {
namespace {

using testing::Config;
using testing::ErrorOf;

TEST_CASE("islands are planned as runs of their own, and priced together", "[plan_run][cpu]") {
  const std::vector<std::string> mesh = {"parallel.pipeline=8", "parallel.tensor=2",
                                         "parallel.schedule=1f1b", "train.offload=[optimizer]"};
  const auto plan = [&](std::vector<std::string> more, int ranks) {
    more.insert(more.end(), mesh.begin(), mesh.end());
    return PlanRun(Config(more), {.ranks = ranks});
  };
  const std::vector<std::string> diloco = {"train.diloco.islands=4", "train.diloco.every=50",
                                           "cluster.island_gb_s=0.1"};
  const PlanReport one = plan({"train.global_batch=32"}, 16), four = plan(diloco, 64);
  CHECK(four.best().plan == one.best().plan);
  CHECK(four.forecast.step_s.p50 == one.forecast.step_s.p50);
  CHECK(four.ranks() == 64);
  CHECK(four.global_batch() == 128);
  // Each of 16 ranks: 26 billion fp32 weights, over a ring of four islands at 0.1 GB/s.
  const IslandsForecast& islands = four.islands;
  const double share = 4.0 * 25.5e9 / 16;
  CHECK(islands.outer_bytes == Approx(1.5 * share).epsilon(0.02));
  CHECK(islands.outer_s > 1.5 * share / 0.1e9);
  CHECK(islands.outer_s < 2.5 * share / 0.1e9);
  CHECK(four.forecast.traffic.total() ==
        Approx(one.forecast.traffic.total() + islands.outer_bytes / 50));
  const double slower = one.forecast.step_s.p50 / four.mean_step_s();
  CHECK(slower < 0.95);
  CHECK(four.forecast.tokens_per_s == Approx(4 * slower * one.forecast.tokens_per_s));
  CHECK(four.gpu_days() == Approx(4 * one.gpu_days() / slower));
  CHECK(four.cost() == Approx(4 * one.cost() / slower));
  CHECK(four.epoch_steps == Approx(one.epoch_steps / 4));
  // w and m, 8 bytes a parameter, lie in the host's memory.
  const auto host = [](const PlanReport& report) {
    int64_t bytes = 0;
    for (const MemoryForecast& rank : report.best().memory) bytes += 2 * rank.host;
    return static_cast<double>(bytes);
  };
  CHECK(host(four) - host(one) == Approx(8 * 25.5e9).epsilon(0.02));
  std::ostringstream text;
  PrintPlan(four, /*explain=*/false, text);
  CHECK(text.str().find("islands  4 of 16 ranks, each by the plan below") != std::string::npos);
  CHECK(PlanToJson(four)["islands"]["count"] == 4);

  std::vector<std::string> halved = diloco;
  halved.push_back("train.diloco.reduce_dtype=bf16");
  CHECK(plan(halved, 64).islands.outer_bytes == Approx(islands.outer_bytes / 2));
  const PlanReport local = plan({"train.diloco.islands=4", "train.diloco.every=50"}, 64);
  CHECK(local.islands.outer_s < islands.outer_s / 10);
  CHECK(
      ErrorOf({"train.diloco.islands=3", "train.diloco.every=5"}, ExitCode::kBadUsage) ==
      "train.diloco.islands: 64 ranks cannot be shared out to 3 islands of as many each; start, or "
      "plan with --ranks, a multiple of 3");
  CHECK(ErrorOf({"train.diloco.islands=2", "train.diloco.every=5", "parallel.data=64"},
                ExitCode::kBadUsage)
            .find("(for each of 2 islands of 32 ranks)") != std::string::npos);
}

TEST_CASE("what islands share is counted once for all of them", "[plan_run][cpu]") {
  const std::vector<std::string> mesh = {"model.preset=internvl2-2b", "parallel.pipeline=2",
                                         "parallel.tensor=2",         "parallel.schedule=1f1b",
                                         "train.global_batch=64",     "train.offload=[optimizer]"};
  const auto plan = [&](std::vector<std::string> more, int ranks) {
    more.insert(more.end(), mesh.begin(), mesh.end());
    return PlanRun(Config(more), {.ranks = ranks});
  };
  const std::vector<std::string> two = {"train.diloco.islands=2", "train.diloco.every=10"};
  const auto with = [&two](const std::vector<std::string>& more) {
    std::vector<std::string> all = two;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  // A node of eight holds two islands of four ranks.
  const Cluster own = plan(two, 8).request.cluster;
  CHECK(own.host.bytes == plan({"train.global_batch=32"}, 4).request.cluster.host.bytes / 2);
  CHECK(plan(two, 32).request.cluster.host.bytes / 2 == own.host.bytes);  // of 16, two nodes
  std::string missed_host;
  try {
    plan(with({"cluster.host_gb=60"}), 8);
  } catch (const UserError& error) {
    missed_host = error.what();
  }
  INFO(missed_host);
  CHECK(missed_host.find("of the 60.0 GiB of a node") != std::string::npos);
  const std::string advice = "cluster.host_gb of ";
  const size_t at = missed_host.find(advice);
  REQUIRE(at != std::string::npos);
  const std::string enough = missed_host.substr(at + advice.size(), 4);
  CHECK_NOTHROW(plan(with({"cluster.host_gb=" + enough}), 8));
  CHECK_NOTHROW(plan({"train.global_batch=32", "train.diloco.every=10", "cluster.host_gb=60"}, 4));
  // All of them are on this machine.
  const PlanReport local =
      plan(with({"cluster.preset=local", "cluster.nodes=1", "cluster.memory_gb=80"}), 8);
  CHECK(local.request.cluster.devices_per_node == 8);
  CHECK(local.forecast.traffic.between_nodes_bytes == 0);
  // A deadline is kept by all steps, outer ones too.
  const PlanReport fast = plan(with({"goal.deadline=1000"}), 8);
  CHECK(fast.goal.sizes.at(0).figures.gpus == 8);
  CHECK(fast.goal.sizes[0].figures.cost == Approx(fast.cost()));
  CHECK(fast.goal.sizes[0].figures.samples_per_s == Approx(fast.samples_per_s()));
  std::vector<std::string> late = with({"goal.deadline=1000", "cluster.island_gb_s=0.000001"});
  late.insert(late.end(), mesh.begin(), mesh.end());
  const std::string missed = ErrorOf(late, ExitCode::kNoPlan);
  INFO(missed);
  CHECK(missed.find("on 64 GPUs") != std::string::npos);
  // An epoch has to fill a step of all islands.
  const std::string few = ErrorOf(with({"train.global_batch=2400"}), ExitCode::kBadData);
  CHECK(few.find("fewer than the 2400 of a step") != std::string::npos);
  CHECK(plan(with({"balance.limits=search"}), 8).global_batch() % 2 == 0);
}

}  // namespace
}  // namespace equipoise
