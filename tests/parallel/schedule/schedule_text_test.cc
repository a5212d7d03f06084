#include "parallel/schedule/schedule_text.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "configs/base/error.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/passes.h"

namespace equipoise {
namespace {

const char* const kText =
    "micro_batches 2\n"
    "stage 0 rank 0 next 1 encoder\n"
    "stage 1 rank 1\n"
    "idle 0V1\n"
    "rank 0: 0V0 0S0>1 0R0<1 0U0 0REDUCE OPT\n"
    "rank 1: 1R0<0 1F0 1B0 1S0>0 1F1 1B1 1REDUCE OPT\n";

Schedule Example() {
  StageGraph graph = ChainGraph({0, 1});
  graph.stages[0].encoder = true;
  StepWork work;
  work.runs = {{true, false}, {true, true}};
  return CompleteSchedule(BuildSchedule("naive", graph, 2), work, {});
}

TEST_CASE("a schedule is written as text", "[schedule_text]") {
  CHECK(ToText(Example()) == kText);
  CHECK(ParseSchedule(kText, "a.txt") == Example());
}

TEST_CASE("text in any form is read as its normal form", "[schedule_text]") {
  const std::string text =
      "# a naive schedule\n"
      "rank 1:1R0<0   1F0 1B0 1S0>0 1F1 1B1 1REDUCE OPT # the loss\r\n"
      "\n"
      "\tidle 0V1\n"
      "stage 0   rank 0 encoder next 1\n"
      "stage 1 rank 1\n"
      "rank 0 : 0V0 0S0>1 0R0<1 0U0 0REDUCE OPT\n"
      "micro_batches 2";
  CHECK(ToText(ParseSchedule(text, "a.txt")) == kText);
}

TEST_CASE("transfers that start together stand in parentheses", "[schedule_text]") {
  const std::string text =
      "micro_batches 2\n"
      "stage 0 rank 0 next 1 2\n"
      "stage 1 rank 1 next 2 no_weight_gradient\n"
      "stage 2 rank 1 no_input_gradient no_weight_gradient\n"
      "silent 0F0 0F1\n"
      "rank 0: 0F0 (0S0>1 0R1<2) (0R1<1 0S0>2 0S1>1) 0B0\n"
      "rank 1:\n";
  StageGraph graph = ChainGraph({0, 1, 1});
  const std::string fault =
      "a.txt:2:7: stage 0: it wants a gradient that stage 2 does not make; let that one need its "
      "input gradient";
  CHECK_THROWS_WITH(ParseSchedule(text, "a.txt"), fault);

  const std::string right = std::string(text).replace(text.find(" no_input_gradient"), 18, "");
  const Schedule schedule = ParseSchedule(right, "a.txt");
  CHECK(ToText(schedule) == right);
  CHECK(schedule.graph.stages[0].next == std::vector<int>{1, 2});
  CHECK(schedule.work.runs.empty());
  CHECK_FALSE(schedule.work.Sends(0, 1));
  const std::vector<bool> joined{false, false, true, false, true, true, false};
  REQUIRE(schedule.ranks[0].size() == joined.size());
  for (size_t i = 0; i < joined.size(); ++i) CHECK(schedule.ranks[0][i].joined == joined[i]);
  CHECK(schedule.ranks[1].empty());
}

TEST_CASE("ops are read from their text", "[schedule_text]") {
  for (const std::string text :
       {"2F0", "2B10", "2I0", "2W0", "12V0", "2U0", "2S0>3", "3R0<2", "2REDUCE", "OPT"}) {
    CHECK(ToString(ParseOp(text)) == text);
  }
  for (const std::string text :
       {"",      "2",      "F0",       "2F",   "2X0",   "2f0",           "2F0 ",
        "2F-1",  "-2F0",   "2F0>1",    "2S0",  "2S0<1", "2R0>1",         "2S0>",
        "2S0>x", "2S0>1x", "2REDUCE0", "0OPT", "OPT0",  "99999999999F0", "2F99999999999"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(ParseOp(text), ConfigError);
    CHECK_THROWS_WITH(ParseOp(text), "\"" + text + "\" is no op; give one such as 2F0, 2B0, " +
                                         "2S0>3, 3R0<2, 2REDUCE or OPT");
  }
}

// Any graph that holds, any ops in any order.
Schedule RandomSchedule(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  Schedule schedule;
  schedule.micro_batches = 1 + below(4);
  const int stages = 1 + below(5), ranks = 1 + below(stages);
  do {
    schedule.graph = {};
    for (int stage = 0; stage < stages; ++stage) {
      StageNode node{.rank = stage < ranks ? stage : below(ranks), .next = {}};
      for (int next = stage + 1; next < stages; ++next) {
        if (below(2) == 0) node.next.push_back(next);
      }
      node.encoder = below(3) == 0;
      if (node.encoder && below(2) == 0) node.lane = below(2);
      node.needs_input_gradient = below(4) != 0;
      node.needs_weight_gradient = below(4) != 0;
      schedule.graph.stages.push_back(node);
    }
  } while (FindGraphFault(schedule.graph));

  std::vector<std::vector<bool>> runs(stages), sends(stages);
  bool idle = false, silent = false;
  for (int cell = 0; cell < stages * schedule.micro_batches; ++cell) {
    const int kind = below(6);
    runs[cell % stages].push_back(kind != 0);
    sends[cell % stages].push_back(kind != 1);
    idle = idle || kind == 0;
    silent = silent || kind == 1;
  }
  if (idle) schedule.work.runs = runs;
  if (silent) schedule.work.sends = sends;

  schedule.ranks.resize(ranks);
  for (std::vector<Op>& list : schedule.ranks) {
    for (int i = below(12); i-- > 0;) {
      Op op{static_cast<OpKind>(below(10)), below(20), below(20)};
      if (IsTransfer(op.kind)) op.peer = below(20);
      op.joined =
          IsTransfer(op.kind) && !list.empty() && IsTransfer(list.back().kind) && below(2) == 0;
      if (op.kind == OpKind::kReduce || op.kind == OpKind::kOptimizer) op.micro_batch = 0;
      if (op.kind == OpKind::kOptimizer) op.stage = 0;
      list.push_back(op);
    }
  }
  return schedule;
}

TEST_CASE("what is written is read back", "[schedule_text]") {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    const Schedule schedule = RandomSchedule(seed);
    const std::string text = ToText(schedule);
    CAPTURE(seed, text);
    const Schedule back = ParseSchedule(text, "a.txt");
    REQUIRE(back == schedule);
    REQUIRE(ToText(back) == text);
  }
  for (const ScheduleKind& kind : ScheduleKinds()) {
    const Schedule schedule = CompleteSchedule(
        BuildSchedule(
            kind.name,
            kind.placement == Placement::kV ? ChainGraph({0, 1, 1, 0}) : ChainGraph({0, 1, 2}), 5),
        {}, {});
    CHECK(ParseSchedule(ToText(schedule), "a.txt") == schedule);
  }
}

TEST_CASE("broken text never does worse than be refused", "[schedule_text]") {
  std::mt19937 random(7);
  const std::string pieces = "0123456789FBIWVUSR><():# \n\tOPTREDUCEnextrankstage-\r,";
  for (int i = 0; i < 5000; ++i) {
    std::string text = kText;
    for (int edits = 1 + random() % 3; edits-- > 0;) {
      const size_t at = random() % text.size();
      const char piece = pieces[random() % pieces.size()];
      if (random() % 3 == 0) {
        text.erase(at, 1 + random() % 5);
      } else if (random() % 2 == 0) {
        text[at] = piece;
      } else {
        text.insert(at, 1, piece);
      }
    }
    try {
      const std::string normal = ToText(ParseSchedule(text, "a.txt"));
      REQUIRE(ToText(ParseSchedule(normal, "a.txt")) == normal);
    } catch (const ConfigError& error) {
      CAPTURE(text, error.what());
      REQUIRE(std::string(error.what()).rfind("a.txt:", 0) == 0);
      REQUIRE(std::string(error.what()).find('\n') == std::string::npos);
    }
  }
}

// kText with one line in another's place.
std::string With(const std::string& line, const std::string& other) {
  std::string text = kText;
  const size_t at = text.find(line);
  REQUIRE(at != std::string::npos);
  return text.replace(at, line.size(), other);
}

void CheckRefused(const std::string& text, const std::string& message) {
  CAPTURE(text);
  CHECK_THROWS_AS(ParseSchedule(text, "s.txt"), ConfigError);
  CHECK_THROWS_WITH(ParseSchedule(text, "s.txt"), "s.txt:" + message);
}

TEST_CASE("errors in the head name line and column", "[schedule_text]") {
  CheckRefused("", "1:1: no micro-batches; add a line micro_batches 4");
  CheckRefused("micro_batches 2\n", "1:16: no stages; add a line stage 0 rank 0");
  CheckRefused(With("micro_batches", "micro_batch"),
               "1:1: unknown word \"micro_batch\"; did you mean \"micro_batches\"?");
  CheckRefused(
      With("micro_batches", "xyz"),
      "1:1: unknown word \"xyz\"; known here are micro_batches, stage, idle, silent, rank");
  CheckRefused(With("micro_batches 2", "micro_batches"),
               "1:14: the line ends; give the number of micro-batches");
  CheckRefused(With("micro_batches 2", "micro_batches two"),
               "1:15: found \"two\"; give the number of micro-batches");
  CheckRefused(With("micro_batches 2", "micro_batches 0"),
               "1:15: 0 micro-batches; give 1 to 1000000");
  CheckRefused(With("micro_batches 2", "micro_batches 2 3"),
               "1:17: found \"3\"; end the line before it");
  CheckRefused(With("stage 1", "micro_batches 3\nstage 1"),
               "3:1: micro_batches stands twice; give it once");
  CheckRefused(With("stage 1", "stage 2"),
               "3:7: found stage 2; list the stages in order, here comes 1");
  CheckRefused(With("stage 1 rank 1", "stage 1 next 1"),
               "3:9: found \"next\"; give rank and its number");
  CheckRefused(With("stage 1 rank 1", "stage 1 rank"),
               "3:13: the line ends; give the rank's number");
  CheckRefused(With("next 1", "next"),
               "2:21: found \"encoder\"; give the number of the stage after it");
  CheckRefused(With("encoder", "encodre"),
               "2:23: unknown word \"encodre\"; did you mean \"encoder\"?");
  CheckRefused(With("next 1", "next 5"),
               "2:7: stage 0: it is followed by stage 5, which does not exist; the last is 1");
}

TEST_CASE("errors in lists of ops name line and column", "[schedule_text]") {
  CheckRefused(With("0U0", "0U"),
               "5:25: \"0U\" is no op; give one such as 2F0, 2B0, 2S0>3, "
               "3R0<2, 2REDUCE or OPT");
  CheckRefused(With("rank 1:", "rank 0:"), "6:1: rank 0 has two lines; join them");
  CheckRefused(With("rank 1:", "rank 2:"), "6:1: no stage lies on rank 2");
  CheckRefused(With("rank 1:", "# rank 1:"), "6:50: rank 1 has no list; add a line \"rank 1:\"");
  CheckRefused(With("rank 1:", "rank 1"), "6:8: found \"1R0<0\"; give : and the rank's ops");
  CheckRefused(With("1F0 1B0", "(1F0 1B0)"), "6:16: 1F0 in a group; only transfers start together");
  CheckRefused(With("0S0>1 ", "(0S0>1) "), "5:13: a group of one; give two transfers or more");
  CheckRefused(With("0S0>1 ", "(0S0>1 ( "), "5:20: a group within a group; close the first with )");
  CheckRefused(With("0S0>1 ", "(0S0>1 "), "5:26: 0U0 in a group; only transfers start together");
  CheckRefused(With("1S0>0 1F1 1B1 1REDUCE OPT", "(1S0>0"),
               "6:23: the group does not end; close it with )");
  CheckRefused(With("0S0>1", "0S0>1)"),
               "5:18: no group is open; put a ( in front of its first transfer");
  CheckRefused(With("idle 0V1", "idle"), "4:5: the line ends; give an op such as 0F2");
  CheckRefused(With("idle 0V1", "idle 0F1"),
               "4:6: 0F1 after idle; give the forward of a stage, here 0V1");
  CheckRefused(With("idle 0V1", "silent 0V0 1F2"),
               "4:12: there is no micro-batch 2; the last is 1");
  CheckRefused(With("idle 0V1", "idle 2F0"), "4:6: there is no stage 2");
}

TEST_CASE("a schedule is drawn in steps of time", "[schedule_text]") {
  CHECK(ToGrid(BuildSchedule("1f1b", ChainGraph({0, 1}), 3)) ==
        "rank 0 | 0F0 0F1  .   .  0B0---- 0F2 0B1----  .  0B2----\n"
        "rank 1 |  .  1F0 1B0---- 1F1 1B1---- 1F2 1B2----  .   .\n");
  const Schedule completed = CompleteSchedule(BuildSchedule("1f1b", ChainGraph({0, 1}), 3), {}, {});
  CHECK(ToGrid(completed) == ToGrid(BuildSchedule("1f1b", ChainGraph({0, 1}), 3)));
}

TEST_CASE("input and weight gradients are drawn one by one", "[schedule_text]") {
  const Schedule schedule = ParseSchedule(
      "micro_batches 1\nstage 0 rank 0 next 1\nstage 1 rank 1\n"
      "rank 0: 0F0 0I0 0W0\nrank 1: 1F0 1I0 1W0\n",
      "a.txt");
  CHECK(ToGrid(schedule) ==
        "rank 0 | 0F0  .   .  0I0 0W0\n"
        "rank 1 |  .  1F0 1I0 1W0  .\n");
}

TEST_CASE("the rank column is as wide as the last rank", "[schedule_text]") {
  const std::string grid =
      ToGrid(BuildSchedule("gpipe", ChainGraph({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), 1));
  CHECK(grid.rfind("rank  0 | 0F0- ", 0) == 0);
  CHECK(grid.find("\nrank 10 | ") != std::string::npos);
}

TEST_CASE("one op is marked, and what is far from it left out", "[schedule_text]") {
  const Schedule built = BuildSchedule("1f1b", ChainGraph({0, 1}), 3);
  CHECK(ToGrid(built, {1, 1}) ==
        "rank 0 | 0F0-- 0F1--   .     .   0B0-------- 0F2-- 0B1--------   .   0B2--------\n"
        "rank 1 |   .   1F0-- >1B0<------ 1F1-- 1B1-------- 1F2-- 1B2--------   .     .\n");
  // A transfer stands for the compute op after it.
  const Schedule completed = CompleteSchedule(built, {}, {});
  REQUIRE(ToString(completed.ranks[1][2]) == "1R1<0");
  CHECK(ToGrid(completed, {1, 2}) == ToGrid(built, {1, 1}));
  CHECK(ToGrid(completed, {1, static_cast<int>(completed.ranks[1].size()) - 1}) ==
        ToGrid(built, {1, 5}));

  const Schedule lone = BuildSchedule("naive", ChainGraph({0}), 12);
  REQUIRE(ToString(lone.ranks[0][11]) == "0B5");
  CHECK(ToGrid(lone, {0, 11}) ==
        "rank 0 | ... ----- 0F3-- 0B3-------- 0F4-- 0B4-------- 0F5-- "
        ">0B5<------ 0F6-- 0B6-------- 0F7-- 0B7-------- 0F8-- 0B8---...\n");
}

}  // namespace
}  // namespace equipoise
