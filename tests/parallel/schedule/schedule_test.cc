#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>

#include "parallel/schedule/dependencies.h"

namespace equipoise {
namespace {

const OpKind kF = OpKind::kForward, kB = OpKind::kBackward, kI = OpKind::kInputGradient,
             kW = OpKind::kWeightGradient, kV = OpKind::kEncoderForward,
             kU = OpKind::kEncoderBackward, kS = OpKind::kSend, kR = OpKind::kRecv;
const Op kReduce0{OpKind::kReduce, 0, 0}, kReduce1{OpKind::kReduce, 1, 0};
const Op kOptimizer{OpKind::kOptimizer, 0, 0};

// "1F0" -> the ops that it takes from; ops of one text on two ranks are told apart by "@RANK".
std::map<std::string, std::set<std::string>> DependenciesByText(const Schedule& schedule) {
  std::map<std::string, std::set<std::string>> all;
  const Dependencies dependencies(schedule);
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const Op& op = schedule.ranks[rank][i];
      std::string text = ToString(op);
      if (op.kind == OpKind::kOptimizer) text += "@" + std::to_string(rank);
      auto& makers = all[text];
      const OpPlace taker{static_cast<int>(rank), static_cast<int>(i)};
      REQUIRE(dependencies.PlaceOf(dependencies.Number(taker)) == taker);
      for (const int maker : dependencies.ProducersOf(dependencies.Number(taker))) {
        const auto takers = dependencies.ConsumersOf(maker);
        CHECK(std::count(takers.begin(), takers.end(), dependencies.Number(taker)) == 1);
        const OpPlace place = dependencies.PlaceOf(maker);
        makers.insert(ToString(schedule.ranks[place.rank][place.position]));
      }
    }
  }
  return all;
}

using Texts = std::set<std::string>;

TEST_CASE("ops wait for the stages beside them", "[schedule]") {
  const Schedule schedule{
      ChainGraph({0, 1}), 1, {}, {{{kF, 0, 0}, {kB, 0, 0}}, {{kF, 1, 0}, {kI, 1, 0}, {kW, 1, 0}}}};
  const auto all = DependenciesByText(schedule);
  CHECK(all.at("0F0").empty());
  CHECK(all.at("1F0") == Texts{"0F0"});
  CHECK(all.at("1I0") == Texts{"1F0"});
  CHECK(all.at("1W0") == Texts{"1I0"});
  CHECK(all.at("0B0") == Texts{"0F0", "1I0"});
}

TEST_CASE("where transfers are listed, ops wait for them", "[schedule]") {
  const Schedule schedule{
      ChainGraph({0, 1}),
      1,
      {},
      {{{kF, 0, 0}, {kS, 0, 0, 1}, {kR, 0, 0, 1}, {kB, 0, 0}, kReduce0, kOptimizer},
       {{kR, 1, 0, 0}, {kF, 1, 0}, {kB, 1, 0}, {kS, 1, 0, 0}, kReduce1, kOptimizer}}};
  const auto all = DependenciesByText(schedule);
  CHECK(all.at("0S0>1") == Texts{"0F0"});
  CHECK(all.at("1R0<0") == Texts{"0S0>1"});
  CHECK(all.at("1F0") == Texts{"1R0<0"});
  CHECK(all.at("1B0") == Texts{"1F0"});
  CHECK(all.at("1S0>0") == Texts{"1B0"});
  CHECK(all.at("0R0<1") == Texts{"1S0>0"});
  CHECK(all.at("0B0") == Texts{"0F0", "0R0<1"});
  CHECK(all.at("0REDUCE") == Texts{"0B0"});
  CHECK(all.at("1REDUCE") == Texts{"1B0"});
  CHECK(all.at("OPT@0") == Texts{"0REDUCE"});
  CHECK(all.at("OPT@1") == Texts{"1REDUCE"});
}

// Encoder stages 0 (rank 0) and 1 (rank 1, frozen) feed stage 2 on rank 1. Micro-batch 1 brings
// nothing to stage 1; stage 0 runs for it and makes no rows.
Schedule TwoEncoders() {
  Schedule schedule;
  schedule.graph = {{{.rank = 0, .next = {2}, .encoder = true},
                     {.rank = 1,
                      .next = {2},
                      .encoder = true,
                      .needs_input_gradient = false,
                      .needs_weight_gradient = false},
                     {.rank = 1, .next = {}}}};
  schedule.micro_batches = 2;
  schedule.work.runs = {{true, true}, {true, false}, {true, true}};
  schedule.work.sends = {{true, false}, {true, true}, {true, true}};
  schedule.ranks = {{{kV, 0, 0}, {kV, 0, 1}, {kU, 0, 0}, {kU, 0, 1}},
                    {{kV, 1, 0}, {kF, 2, 0}, {kB, 2, 0}, {kF, 2, 1}, {kB, 2, 1}}};
  return schedule;
}

TEST_CASE("rows go where there are some, gradients where one is wanted", "[schedule]") {
  const Schedule schedule = TwoEncoders();
  CHECK(SendsRows(schedule, 0, 2, 0));
  CHECK_FALSE(SendsRows(schedule, 0, 2, 1));  // no rows
  CHECK(SendsRows(schedule, 1, 2, 0));
  CHECK_FALSE(SendsRows(schedule, 1, 2, 1));  // does not run
  CHECK(SendsGradient(schedule, 2, 0, 0));
  CHECK_FALSE(SendsGradient(schedule, 2, 1, 0));  // frozen
  const auto previous = schedule.graph.PreviousStages();
  CHECK(ConsumersOf(schedule, previous, {kV, 0, 0}) == std::vector<int>{2});
  CHECK(ConsumersOf(schedule, previous, {kV, 0, 1}).empty());
  CHECK(ConsumersOf(schedule, previous, {kB, 2, 0}) == std::vector<int>{0});
  CHECK(ConsumersOf(schedule, previous, {kB, 2, 1}).empty());
  CHECK(ConsumersOf(schedule, previous, {kW, 2, 0}).empty());

  const auto all = DependenciesByText(schedule);
  CHECK(all.at("2F0") == Texts{"0V0", "1V0"});
  CHECK(all.at("2F1").empty());
  CHECK(all.at("0U0") == Texts{"0V0", "2B0"});
  CHECK(all.at("0U1") == Texts{"0V1"});
}

TEST_CASE("a frozen stage makes no input gradient for those before it", "[schedule]") {
  Schedule schedule = TwoEncoders();
  schedule.work = {};
  schedule.graph.stages[2].needs_input_gradient = false;
  CHECK_FALSE(SendsGradient(schedule, 2, 0, 0));
  CHECK(DependenciesByText(schedule).at("0U0") == Texts{"0V0"});
}

TEST_CASE("what is missing or of no stage is left to the validator", "[schedule]") {
  Schedule schedule{
      ChainGraph({0, 1}), 1, {}, {{{kB, 0, 0}, {kF, 9, 0}, {kF, 0, 5}}, {{kF, 1, 0}}}};
  const auto all = DependenciesByText(schedule);
  CHECK(all.at("0B0").empty());
  CHECK(all.at("1F0").empty());
  CHECK(all.at("9F0").empty());
  CHECK(all.at("0F5").empty());
}

}  // namespace
}  // namespace equipoise
