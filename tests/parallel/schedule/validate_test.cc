#include "parallel/schedule/validate.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/error.h"

namespace equipoise {
namespace {

using Lists = std::vector<std::vector<Op>>;

// 1F1B on two ranks, four micro-batches, complete; transfers that cross are joined.
Schedule OneForwardOneBackward() {
  Schedule schedule{ChainGraph({0, 1}), 4, {}, Lists(2)};
  std::vector<Op>&first = schedule.ranks[0], &second = schedule.ranks[1];
  first = {{OpKind::kForward, 0, 0}, {OpKind::kSend, 0, 0, 1}};
  for (int m = 0; m < 4; ++m) {
    if (m < 3) first.push_back({OpKind::kForward, 0, m + 1});
    if (m < 3) first.push_back({OpKind::kSend, 0, m + 1, 1});
    first.push_back({OpKind::kRecv, 0, m, 1, /*joined=*/m < 3});
    first.push_back({OpKind::kBackward, 0, m});
    second.push_back({OpKind::kRecv, 1, m, 0, /*joined=*/m > 0});
    second.push_back({OpKind::kForward, 1, m});
    second.push_back({OpKind::kBackward, 1, m});
    second.push_back({OpKind::kSend, 1, m, 0});
  }
  for (int r : {0, 1}) {
    schedule.ranks[r].push_back({OpKind::kReduce, r});
    schedule.ranks[r].push_back({OpKind::kOptimizer});
  }
  return schedule;
}

// Both stages on one rank, compute alone, backward split.
Schedule TwoChunks() {
  Schedule schedule{ChainGraph({0, 0}), 2, {}, Lists(1)};
  for (int m : {0, 1}) {
    for (int s : {0, 1}) schedule.ranks[0].push_back({OpKind::kForward, s, m});
    for (int s : {1, 0}) {
      schedule.ranks[0].push_back({OpKind::kInputGradient, s, m});
      schedule.ranks[0].push_back({OpKind::kWeightGradient, s, m});
    }
  }
  for (int s : {1, 0}) schedule.ranks[0].push_back({OpKind::kReduce, s});
  return schedule;
}

// An encoder (0) and a text stage (1) feed the stage of the loss (2); micro-batch 1 has no picture.
Schedule EncoderBesideText() {
  Schedule schedule{{{{0, {2}, /*encoder=*/true}, {1, {2}}, {2, {}}}}, 2, {}, Lists(3)};
  schedule.work.runs = {{true, false}, {true, true}, {true, true}};
  schedule.ranks = {{{OpKind::kEncoderForward, 0, 0},
                     {OpKind::kSend, 0, 0, 2},
                     {OpKind::kRecv, 0, 0, 2},
                     {OpKind::kEncoderBackward, 0, 0}},
                    {},
                    {}};
  for (int m : {0, 1}) {
    std::vector<Op>&text = schedule.ranks[1], &loss = schedule.ranks[2];
    text.insert(text.end(), {{OpKind::kForward, 1, m}, {OpKind::kSend, 1, m, 2}});
    text.insert(text.end(), {{OpKind::kRecv, 1, m, 2}, {OpKind::kBackward, 1, m}});
    if (m == 0) loss.push_back({OpKind::kRecv, 2, m, 0});
    loss.push_back({OpKind::kRecv, 2, m, 1});
    loss.insert(loss.end(), {{OpKind::kForward, 2, m}, {OpKind::kBackward, 2, m}});
    if (m == 0) loss.push_back({OpKind::kSend, 2, m, 0});
    loss.push_back({OpKind::kSend, 2, m, 1});
  }
  return schedule;
}

OpPlace PlaceOf(const Schedule& schedule, const std::string& text) {
  for (size_t r = 0; r < schedule.ranks.size(); ++r) {
    for (size_t p = 0; p < schedule.ranks[r].size(); ++p) {
      if (ToString(schedule.ranks[r][p]) == text) return {static_cast<int>(r), static_cast<int>(p)};
    }
  }
  FAIL("no op " << text);
  return {};
}

Op& OpCalled(Schedule& schedule, const std::string& text) {
  const OpPlace place = PlaceOf(schedule, text);
  return schedule.ranks[place.rank][place.position];
}

void Swap(Schedule& schedule, const std::string& a, const std::string& b) {
  std::swap(OpCalled(schedule, a), OpCalled(schedule, b));
}

void Drop(Schedule& schedule, const std::string& text) {
  const OpPlace place = PlaceOf(schedule, text);
  std::vector<Op>& list = schedule.ranks[place.rank];
  const auto after = list.erase(list.begin() + place.position);
  if (after != list.end() && after->joined) after->joined = false;
}

void InsertBefore(Schedule& schedule, const std::string& text, const Op& op) {
  const OpPlace place = PlaceOf(schedule, text);
  std::vector<Op>& list = schedule.ranks[place.rank];
  list.insert(list.begin() + place.position, op);
}

// The fault is at the op called `at` and its line is "rank R, op P (AT): MESSAGE".
void CheckFault(const Schedule& schedule, const std::string& at, const std::string& message) {
  const auto fault = FindFault(schedule);
  REQUIRE(fault);
  INFO(fault->message);
  const OpPlace place = at == "end" ? fault->place : PlaceOf(schedule, at);
  CHECK(fault->place == place);
  const std::string rank = "rank " + std::to_string(place.rank) + ", ";
  const std::string op = "op " + std::to_string(place.position) + " (" + at + ")";
  CHECK(fault->message == rank + (at == "end" ? at : op) + ": " + message);
}

TEST_CASE("valid schedules have no fault", "[validate][cpu]") {
  CHECK_FALSE(FindFault(OneForwardOneBackward()));
  CHECK_FALSE(FindFault(TwoChunks()));
  CHECK_FALSE(FindFault(EncoderBesideText()));
  CHECK_NOTHROW(Validate(OneForwardOneBackward(), "schedule.txt"));
}

TEST_CASE("an op that is missing is named where it should stand", "[validate][cpu]") {
  Schedule schedule = OneForwardOneBackward();
  SECTION("backward") {
    Drop(schedule, "1B1");
    CheckFault(schedule, "1B2", "1B1 is missing before this");
  }
  SECTION("forward") {
    Drop(schedule, "0F3");
    CheckFault(schedule, "0B3", "0F3 is missing before this");
  }
  SECTION("the last backward") {
    Drop(schedule, "0B3");
    CheckFault(schedule, "0REDUCE", "0B3 is missing before this");
  }
  SECTION("a weight gradient") {
    schedule = TwoChunks();
    Drop(schedule, "1W1");
    CheckFault(schedule, "1REDUCE", "1W1 is missing before this");
  }
  SECTION("a whole rank") {
    schedule.ranks[1].clear();
    CheckFault(schedule, "end", "1F0 is missing before this");
  }
  SECTION("a reduction") {
    Drop(schedule, "1REDUCE");
    const auto fault = FindFault(schedule);
    REQUIRE(fault);
    CHECK(fault->message == "rank 1, op 16 (OPT): 1REDUCE is missing");
  }
  SECTION("the optimizer") {
    schedule.ranks[1].pop_back();
    CheckFault(schedule, "end", "OPT is missing");
  }
}

TEST_CASE("an op that is listed twice is named", "[validate][cpu]") {
  Schedule schedule = OneForwardOneBackward();
  SECTION("compute") {
    InsertBefore(schedule, "1R2<0", {OpKind::kBackward, 1, 0});
    OpCalled(schedule, "1R2<0").joined = false;
    const auto fault = FindFault(schedule);
    REQUIRE(fault);
    CHECK(fault->message == "rank 1, op 8 (1B0): listed twice, at op 2 already");
  }
  SECTION("transfer, reduction, optimizer") {
    const std::string text = GENERATE("0S2>1", "0R1<1", "0REDUCE", "OPT");
    const Op twice = OpCalled(schedule, text);
    const int first = PlaceOf(schedule, text).position;
    schedule.ranks[0].push_back(twice);
    schedule.ranks[0].back().joined = false;
    const auto fault = FindFault(schedule);
    REQUIRE(fault);
    CHECK(fault->place == OpPlace{0, static_cast<int>(schedule.ranks[0].size()) - 1});
    CHECK_THAT(fault->message,
               Catch::EndsWith("listed twice, at op " + std::to_string(first) + " already"));
  }
  SECTION("whole backward beside a part of it") {
    schedule = TwoChunks();
    schedule.ranks[0].insert(schedule.ranks[0].end() - 2, {OpKind::kBackward, 1, 0});
    CheckFault(schedule, "1B0", "1I0 at op 2 does part of it already");
  }
}

TEST_CASE("ops in the wrong order are named", "[validate][cpu]") {
  Schedule schedule = OneForwardOneBackward();
  SECTION("backward before forward") {
    Swap(schedule, "1F0", "1B0");
    CheckFault(schedule, "1B0", "backward before its forward 1F0");
  }
  SECTION("descending backwards") {
    Swap(schedule, "0B0", "0B1");
    CheckFault(schedule, "0B1", "before 0R1<1, whose result it takes");
  }
  SECTION("descending forwards") {
    Swap(schedule, "0F0", "0F1");
    CheckFault(schedule, "0S0>1", "before 0F0, whose result it takes");
  }
  SECTION("weight gradient before input gradient") {
    schedule = TwoChunks();
    Swap(schedule, "1I0", "1W0");
    CheckFault(schedule, "1W0", "weight gradient before its input gradient 1I0");
  }
  SECTION("chunks of one rank") {
    schedule = TwoChunks();
    Swap(schedule, "0F0", "1F0");
    CheckFault(schedule, "1F0", "before 0F0, whose result it takes");
  }
  SECTION("descending weight gradients") {
    schedule = TwoChunks();
    const Op late = OpCalled(schedule, "0W0");
    Drop(schedule, "0W0");
    InsertBefore(schedule, "1REDUCE", late);
    CheckFault(schedule, "0W0", "comes after 0W1; the weight gradients of a stage ascend");
  }
  SECTION("reduction before the last gradient") {
    Swap(schedule, "0B3", "0REDUCE");
    CheckFault(schedule, "0REDUCE", "reduces before 0B3 adds its gradient");
  }
  SECTION("reductions ascend") {
    schedule = TwoChunks();
    Swap(schedule, "0REDUCE", "1REDUCE");
    CheckFault(schedule, "1REDUCE",
               "comes after 0REDUCE; reductions of a rank descend, so that all data ranks agree");
  }
  SECTION("optimizer before a reduction") {
    Swap(schedule, "1REDUCE", "OPT");
    Swap(schedule, "1REDUCE", "OPT");  // rank 0's own OPT is found first, as before
    std::swap(schedule.ranks[1][16], schedule.ranks[1][17]);
    const auto fault = FindFault(schedule);
    REQUIRE(fault);
    CHECK(fault->message == "rank 1, op 16 (OPT): before 1REDUCE; the optimizer is last");
  }
  SECTION("an op after the optimizer") {
    const Op late{OpKind::kRecv, 0, 3, 1};
    std::vector<Op>& list = schedule.ranks[0];
    list.erase(std::find(list.begin(), list.end(), late));
    list.push_back(late);
    CheckFault(schedule, "0B3", "before 0R3<1, whose result it takes");
  }
  SECTION("descending forwards without transfers") {
    Schedule gpipe{ChainGraph({0}), 2, {}, Lists(1)};
    gpipe.ranks[0] = {{OpKind::kForward, 0, 1},
                      {OpKind::kForward, 0, 0},
                      {OpKind::kBackward, 0, 0},
                      {OpKind::kBackward, 0, 1}};
    CheckFault(gpipe, "0F0", "comes after 0F1; the forwards of a stage ascend");
    std::swap(gpipe.ranks[0][0], gpipe.ranks[0][1]);
    std::swap(gpipe.ranks[0][2], gpipe.ranks[0][3]);
    CheckFault(gpipe, "0B0", "comes after 0B1; the backwards of a stage ascend");
  }
}

TEST_CASE("an op that does not belong is named", "[validate][cpu]") {
  Schedule schedule = OneForwardOneBackward();
  const auto change = [&](const std::string& text, const Op& op) { OpCalled(schedule, text) = op; };
  SECTION("stage of another rank") {
    change("1B2", {OpKind::kBackward, 0, 2});
    const auto fault = FindFault(schedule);
    REQUIRE(fault);
    CHECK(fault->message == "rank 1, op 10 (0B2): stage 0 is on rank 0");
  }
  SECTION("no such stage") {
    change("1B2", {OpKind::kBackward, 7, 2});
    CheckFault(schedule, "7B2", "there is no stage 7; the last is 1");
  }
  SECTION("no such micro-batch") {
    change("1B2", {OpKind::kBackward, 1, 4});
    CheckFault(schedule, "1B4", "there is no micro-batch 4; the last is 3");
  }
  SECTION("op of an encoder") {
    change("1F2", {OpKind::kEncoderForward, 1, 2});
    CheckFault(schedule, "1V2", "stage 1 is no encoder, it has no V and U");
    schedule = EncoderBesideText();
    change("0V0", {OpKind::kForward, 0, 0});
    CheckFault(schedule, "0F0", "stage 0 is an encoder, its passes are V and U");
  }
  SECTION("a frozen stage") {
    schedule.graph.stages[1].needs_weight_gradient = false;
    CheckFault(schedule, "1REDUCE", "stage 1 has no trainable weights to reduce");
    schedule = OneForwardOneBackward();
    schedule.graph.stages[0].needs_weight_gradient = false;
    schedule.graph.stages[0].needs_input_gradient = false;
    schedule.graph.stages[1].needs_input_gradient = false;
    CheckFault(schedule, "0B0", "stage 0 is frozen, with all before it: it has no backward");
    schedule = TwoChunks();
    schedule.graph.stages[1].needs_weight_gradient = false;
    CheckFault(schedule, "1W0", "stage 1 is frozen and has no weight gradient");
  }
  SECTION("no work for the micro-batch") {
    schedule = EncoderBesideText();
    schedule.ranks[0].push_back({OpKind::kEncoderForward, 0, 1});
    CheckFault(schedule, "0V1", "stage 0 has nothing to do for micro-batch 1");
  }
  SECTION("joined to a compute op") {
    OpCalled(schedule, "0R3<1").joined = true;
    CheckFault(schedule, "0R3<1", "only a transfer can be joined to the transfer before it");
  }
  SECTION("peers") {
    OpCalled(schedule, "0S2>1").peer = 5;
    CheckFault(schedule, "0S2>5", "there is no stage 5; the last is 1");
    schedule = OneForwardOneBackward();
    OpCalled(schedule, "0F1").peer = 1;
    CheckFault(schedule, "0F1", "send and receive, and no other, have a peer");
  }
}

TEST_CASE("transfers that are missing, superfluous or crossed are named", "[validate][cpu]") {
  Schedule schedule = OneForwardOneBackward();
  SECTION("send") {
    Drop(schedule, "0S2>1");
    CheckFault(schedule, "0R1<1",
               "0S2>1 is missing, the other end of 1R2<0; it has to stand after 0F2");
  }
  SECTION("receive") {
    Drop(schedule, "1R2<0");
    CheckFault(schedule, "1F2",
               "1R2<0 is missing, the other end of 0S2>1; it has to stand before 1F2");
  }
  SECTION("both") {
    Drop(schedule, "0S2>1");
    Drop(schedule, "1R2<0");
    CheckFault(schedule, "0R1<1",
               "0S2>1 is missing, as is its other end; it has to stand after 0F2");
  }
  SECTION("superfluous") {
    schedule = EncoderBesideText();
    schedule.ranks[0].push_back({OpKind::kSend, 0, 1, 2});
    CheckFault(schedule, "0S1>2", "nothing of micro-batch 1 travels from stage 0 to stage 2");
    schedule = EncoderBesideText();
    OpCalled(schedule, "1S0>2").peer = 0;
    CheckFault(schedule, "1S0>0", "nothing of micro-batch 0 travels from stage 1 to stage 0");
  }
  SECTION("a frozen stage gets no gradient") {
    schedule = EncoderBesideText();
    schedule.graph.stages[0].needs_input_gradient = false;
    schedule.graph.stages[0].needs_weight_gradient = false;
    Drop(schedule, "0U0");
    CheckFault(schedule, "0R0<2", "nothing of micro-batch 0 travels from stage 2 to stage 0");
  }
  SECTION("the order of two ranks differs") {
    std::vector<Op>& list = schedule.ranks[1];
    list.erase(std::find(list.begin(), list.end(), OpCalled(schedule, "1R2<0")));
    InsertBefore(schedule, "1R1<0", {OpKind::kRecv, 1, 2, 0, /*joined=*/true});
    OpCalled(schedule, "1R1<0").joined = false;
    CheckFault(schedule, "0S1>1",
               "rank 1 lists 1R2<0 (op 4) in its place; two ranks that list what they share in"
               " different orders wait for each other");
  }
}

TEST_CASE("deadlocks are named", "[validate][cpu]") {
  SECTION("sends next to their ops, where transfers block") {
    Schedule schedule = OneForwardOneBackward();
    for (std::vector<Op>& list : schedule.ranks) {
      for (Op& op : list) op.joined = false;
    }
    CheckFault(schedule, "0S1>1",
               "rank 1 lists 1S0>0 (op 3) in its place; two ranks that list what they share in"
               " different orders wait for each other");
  }
  SECTION("three ranks in a circle, only where transfers block") {
    Schedule schedule{ChainGraph({0, 1, 2}), 1, {}, Lists(3)};
    schedule.graph.stages[0].next = {1, 2};
    schedule.graph.stages[0].needs_weight_gradient = false;  // forwards alone
    schedule.graph.stages[1].needs_weight_gradient = false;
    schedule.graph.stages[2].needs_weight_gradient = false;
    for (StageNode& stage : schedule.graph.stages) stage.needs_input_gradient = false;
    const Op to_1{OpKind::kSend, 0, 0, 1}, to_2{OpKind::kSend, 0, 0, 2};
    schedule.ranks[0] = {{OpKind::kForward, 0, 0}, to_1, to_2};
    schedule.ranks[1] = {
        {OpKind::kRecv, 1, 0, 0}, {OpKind::kForward, 1, 0}, {OpKind::kSend, 1, 0, 2}};
    schedule.ranks[2] = {
        {OpKind::kRecv, 2, 0, 1}, {OpKind::kRecv, 2, 0, 0}, {OpKind::kForward, 2, 0}};
    CHECK_FALSE(FindFault(schedule));
    std::swap(schedule.ranks[0][1], schedule.ranks[0][2]);
    CheckFault(schedule, "0S0>2",
               "can never run where transfers block; rank 1 stands at op 0 (1R0<0), rank 2 stands"
               " at op 0 (2R0<1)");
    std::swap(schedule.ranks[2][0], schedule.ranks[2][1]);
    CHECK_FALSE(FindFault(schedule));
  }
  SECTION("always") {
    Schedule schedule{ChainGraph({0, 1}), 2, {}, Lists(2)};
    for (int s : {0, 1}) {
      for (int m : {0, 1}) schedule.ranks[s].push_back({OpKind::kForward, s, m});
      for (int m : {0, 1}) schedule.ranks[s].push_back({OpKind::kBackward, s, m});
    }
    CHECK_FALSE(FindFault(schedule));
    Swap(schedule, "0F1", "0B0");
    Swap(schedule, "1F1", "1B0");
    CHECK_FALSE(FindFault(schedule));  // one micro-batch after the other
    Swap(schedule, "1F1", "1B0");
    CheckFault(schedule, "0B0", "can never run; rank 1 stands at op 1 (1F1)");
  }
}

TEST_CASE("a schedule of the wrong shape is refused", "[validate][cpu]") {
  Schedule schedule = OneForwardOneBackward();
  schedule.ranks.emplace_back();
  CHECK_THAT(FindFault(schedule)->message, Catch::Contains("2 ranks, ops are listed for 3"));
  schedule = OneForwardOneBackward();
  schedule.work.runs = {{true, true, true, true}, {true, true, true}};
  CHECK_THAT(FindFault(schedule)->message, Catch::Contains("2 stages of 4 micro-batches"));
  schedule = OneForwardOneBackward();
  schedule.graph.stages[1].next = {0};
  CHECK(FindFault(schedule));
  CHECK_THAT(FindFault({ChainGraph({0}), 0, {}, Lists(1)})->message,
             Catch::Contains("no micro-batches"));
}

TEST_CASE("the refusal shows the lists around the fault", "[validate][cpu]") {
  Schedule schedule = OneForwardOneBackward();
  Swap(schedule, "1F0", "1B0");
  std::string text;
  try {
    Validate(schedule, "schedule.txt");
  } catch (const ConfigError& error) {
    text = error.what();
  }
  CHECK(text ==
        "schedule.txt: rank 1, op 1 (1B0): backward before its forward 1F0\n"
        "  op    rank 0   rank 1\n"
        "   0    0F0      1R0<0\n"
        "   1    0S0>1   >1B0<\n"
        "   2    0F1      1F0\n"
        "   3    0S1>1    1S0>0\n"
        "   4    0R0<1    1R1<0");
}

}  // namespace
}  // namespace equipoise
