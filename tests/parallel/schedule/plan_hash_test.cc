#include "parallel/schedule/plan_hash.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace equipoise {
namespace {

Schedule TwoStages() {
  Schedule schedule{ChainGraph({0, 1}), 2, {}, std::vector<std::vector<Op>>(2)};
  for (int s : {0, 1}) {
    for (int m : {0, 1}) schedule.ranks[s].push_back({OpKind::kForward, s, m});
    for (int m : {0, 1}) schedule.ranks[s].push_back({OpKind::kBackward, s, m});
  }
  schedule.work.runs = {{true, true}, {true, true}};
  schedule.work.sends = {{true, true}, {true, true}};
  return schedule;
}

uint64_t HashOf(const Schedule& schedule) {
  StableHash hash;
  AddTo(hash, schedule);
  return hash.value();
}

template <class Value>
uint64_t HashOf(std::initializer_list<Value> values) {
  StableHash hash;
  for (const Value& value : values) hash.Add(value);
  return hash.value();
}

TEST_CASE("the hash is the same on every machine", "[plan_hash][cpu]") {
  // Values of an implementation of its own, in Python: x = mix(x ^ word), mix = splitmix64.
  CHECK(HashOf<uint64_t>({0}) == 0xe220a8397b1dcdaf);
  CHECK(HashOf<uint64_t>({1, 2}) == 0xbcd9dbb49673066b);
  CHECK(HashOf<std::string_view>({"pipeline"}) == 0xe952bbf533173719);
  CHECK(HashOf<std::string_view>({"micro-batch \xc3\xa4"}) == 0x93b005c42fcab53f);
}

TEST_CASE("the hash keeps order and bounds", "[plan_hash][cpu]") {
  CHECK(HashOf<uint64_t>({1, 2}) != HashOf<uint64_t>({2, 1}));
  CHECK(HashOf<uint64_t>({0}) != HashOf<uint64_t>({0, 0}));
  CHECK(HashOf<std::string_view>({"ab", "c"}) != HashOf<std::string_view>({"a", "bc"}));
  CHECK(HashOf<std::string_view>({"a"}) != HashOf<std::string_view>({std::string_view("a\0", 2)}));
}

// One schedule for each thing that can differ, and the line that says it.
struct Variant {
  std::string difference;
  Schedule schedule;
};

std::vector<Variant> Variants() {
  std::vector<Variant> variants;
  const auto add = [&](const std::string& difference) -> Schedule& {
    variants.push_back({difference, TwoStages()});
    return variants.back().schedule;
  };
  std::vector<Op>& swapped = add("pipeline rank 1, op 1': 1F1 / 1B0").ranks[1];
  std::swap(swapped[1], swapped[2]);
  add("pipeline rank 0, op 3': 0B1 / nothing").ranks[0].pop_back();
  add("pipeline rank 1, op 4': nothing / OPT").ranks[1].push_back({OpKind::kOptimizer});
  add("stage 0, micro-batch 1': runs / idle").work.runs[0][1] = false;
  add("stage 0, micro-batch 0': runs / runs, sends nothing").work.sends[0][0] = false;
  add("stage 0': on rank 0, then 1 / on rank 0, then 1, encoder").graph.stages[0].encoder = true;
  add("stage 0': on rank 0, then 1 / on rank 0, then 1 in lane 2").graph.stages[0].lane = 2;
  add("stage 1': on rank 1 / on rank 0").graph.stages[1].rank = 0;
  add("stage 0': on rank 0, then 1 / on rank 0").graph.stages[0].next.clear();
  add("no weight gradient").graph.stages[1].needs_weight_gradient = false;
  add("no input gradient").graph.stages[1].needs_input_gradient = false;
  Schedule& longer = add("stages': 2 / 3");
  longer.graph.stages.emplace_back();
  longer.work = {};
  add("ops': nothing / 0").ranks.emplace_back();
  Schedule& transfers = add("op 0': 0F0 / 0S0>1");
  transfers.ranks[0][0] = {OpKind::kSend, 0, 0, 1};
  return variants;
}

TEST_CASE("whatever differs is seen by the hash and named", "[plan_hash][cpu]") {
  const Schedule usual = TwoStages();
  const auto items = PlanItems(usual, "schedule of data rank 1");
  std::vector<uint64_t> hashes = {HashOf(usual)};
  for (const Variant& variant : Variants()) {
    INFO(variant.difference);
    const auto others = PlanItems(variant.schedule, "schedule of data rank 1");
    CHECK(HashOf(variant.schedule) != HashOf(usual));
    const auto line = DescribeDifference({items, items, items, others}, {0, 1, 2, 3});
    REQUIRE(line);
    CHECK_THAT(*line,
               Catch::StartsWith("rank 0 and rank 3 differ first in 'schedule of data rank 1, "));
    CHECK_THAT(*line, Catch::EndsWith(variant.difference));
  }
  CHECK_FALSE(DescribeDifference({items, items}, {0, 1}));
}

TEST_CASE("equal schedules have equal hashes and items", "[plan_hash][cpu]") {
  Schedule same = TwoStages();
  same.work = {};  // everything runs, everything sends, said in another way
  CHECK(HashOf(same) == HashOf(TwoStages()));
  CHECK(PlanItems(same, "a") == PlanItems(TwoStages(), "a"));
}

TEST_CASE("the line names both ranks, the item and both values", "[plan_hash][cpu]") {
  Schedule other = TwoStages();
  other.ranks[1][2] = {OpKind::kForward, 1, 1};
  const auto usual = PlanItems(TwoStages(), "schedule of data rank 1");
  CHECK(*DescribeDifference({usual, usual, usual, PlanItems(other, "schedule of data rank 1")},
                            {0, 1, 2, 3}) ==
        "rank 0 and rank 3 differ first in 'schedule of data rank 1, pipeline rank 1, op 2':"
        " 1B0 / 1F1");
}

TEST_CASE("the ranks named are one of the many and one of the few", "[plan_hash][cpu]") {
  CHECK_FALSE(DifferingRanks({}));
  CHECK_FALSE(DifferingRanks({5}));
  CHECK_FALSE(DifferingRanks({5, 5, 5}));
  CHECK(DifferingRanks({5, 5, 5, 6}) == std::pair(0, 3));
  CHECK(DifferingRanks({6, 5, 5, 5}) == std::pair(0, 1));
  CHECK(DifferingRanks({5, 6, 5}) == std::pair(0, 1));
  CHECK(DifferingRanks({6, 7, 5, 5}) == std::pair(0, 2));
  CHECK(DifferingRanks({5, 6}) == std::pair(0, 1));
}

TEST_CASE("items survive the way to another rank", "[plan_hash][cpu]") {
  std::vector<PlanItem> items = PlanItems(TwoStages(), "schedule");
  items.push_back({"samples of micro-batch 3", ""});
  CHECK(ParsePlanItems(ToText(items)) == items);
  CHECK(ParsePlanItems("").empty());
}

}  // namespace
}  // namespace equipoise
