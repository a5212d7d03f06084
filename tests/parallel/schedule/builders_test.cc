#include "parallel/schedule/builders.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "configs/base/error.h"

namespace equipoise {
namespace {

std::vector<std::string> Texts(const Schedule& schedule) {
  std::vector<std::string> texts;
  for (const std::vector<Op>& list : schedule.ranks) {
    std::string& text = texts.emplace_back();
    for (const Op& op : list) text += (text.empty() ? "" : " ") + ToString(op);
  }
  return texts;
}

// As the literature writes a rank's list: "F0a" is micro-batch 0 on the rank's first chunk.
std::vector<std::string> ChunkTexts(const Schedule& schedule) {
  const int ranks = schedule.graph.num_ranks();
  std::vector<std::string> texts;
  for (const std::vector<Op>& list : schedule.ranks) {
    std::string& text = texts.emplace_back();
    for (const Op& op : list) {
      text += text.empty() ? "" : " ";
      text += op.kind == OpKind::kForward         ? "F"
              : op.kind == OpKind::kBackward      ? "B"
              : op.kind == OpKind::kInputGradient ? "I"
                                                  : "W";
      text += std::to_string(op.micro_batch);
      if (schedule.graph.num_stages() > ranks) text += static_cast<char>('a' + op.stage / ranks);
    }
  }
  return texts;
}

StageGraph Chain(int ranks, int chunks = 1, Placement placement = Placement::kLoop) {
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < ranks * chunks; ++stage)
    rank_of_stage.push_back(RankOfPlace(placement, stage, ranks));
  return ChainGraph(rank_of_stage);
}

TEST_CASE("naive runs one micro-batch after the other", "[builders]") {
  CHECK(Texts(BuildSchedule("naive", Chain(2), 2)) ==
        std::vector<std::string>{"0F0 0B0 0F1 0B1", "1F0 1B0 1F1 1B1"});
  CHECK(Texts(BuildSchedule("naive", Chain(1, 2), 1)) ==
        std::vector<std::string>{"0F0 1F0 1B0 0B0"});
}

TEST_CASE("gpipe runs all forwards, then all backwards", "[builders]") {
  const auto texts = ChunkTexts(BuildSchedule("gpipe", Chain(4), 8));
  REQUIRE(texts.size() == 4);
  for (const std::string& text : texts) {
    CHECK(text == "F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7");
  }
}

TEST_CASE("1f1b of 4 ranks and 8 micro-batches", "[builders]") {
  CHECK(ChunkTexts(BuildSchedule("1f1b", Chain(4), 8)) ==
        std::vector<std::string>{"F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7",
                                 "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
                                 "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7",
                                 "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"});
}

TEST_CASE("zb_h1 of 4 ranks and 8 micro-batches", "[builders]") {
  CHECK(ChunkTexts(BuildSchedule("zb_h1", Chain(4), 8)) ==
        std::vector<std::string>{
            "F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7",
            "F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 F6 I4 W3 F7 I5 W4 I6 W5 I7 W6 W7",
            "F0 F1 I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 F6 I5 W3 F7 I6 W4 I7 W5 W6 W7",
            "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7"});
}

TEST_CASE("zb_h1 is 1f1b in halves, beside whole backwards of encoders", "[builders]") {
  StageGraph encoder = ChainGraph({0, 1, 2, 2});
  encoder.stages[0].encoder = true;
  CHECK(Texts(BuildSchedule("zb_h1", encoder, 2)) ==
        std::vector<std::string>{"0V0 0V1 0U0 0U1", "1F0 1F1 1I0 1I1 1W0 1W1",
                                 "2F0 3F0 3I0 2I0 2F1 3F1 3I1 2I1 3W0 2W0 3W1 2W1"});
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int micro_batches = 1; micro_batches <= 12; ++micro_batches) {
      Schedule halves = BuildZbH1(Chain(ranks), micro_batches);
      for (std::vector<Op>& list : halves.ranks) {
        std::erase_if(list, [](const Op& op) { return op.kind == OpKind::kWeightGradient; });
        for (Op& op : list) {
          if (op.kind == OpKind::kInputGradient) op.kind = OpKind::kBackward;
        }
      }
      CHECK(Texts(halves) == Texts(Build1F1B(Chain(ranks), micro_batches)));
    }
  }
}

TEST_CASE("zb_v of 4 ranks and 8 micro-batches", "[builders]") {
  CHECK(ChunkTexts(BuildSchedule("zb_v", Chain(4, 2, Placement::kV), 8)) ==
        std::vector<std::string>{
            "F0a F1a F2a F3a F4a F5a F6a F0b I0b W0b F1b I1b W1b F2b I2b W2b F3b I3b W3b F7a I0a "
            "W0a F4b I4b W4b I1a W1a F5b I5b W5b I2a W2a F6b I6b W6b I3a W3a F7b I7b W7b I4a W4a "
            "I5a W5a I6a W6a I7a W7a",
            "F0a F1a F2a F3a F4a F0b F5a F1b I0b W0b F2b I1b W1b F3b I2b W2b F6a I0a W0a F4b I3b "
            "W3b F7a I1a W1a F5b I4b W4b I2a W2a F6b I5b W5b I3a W3a F7b I6b W6b I4a I7b I5a W4a "
            "I6a W5a I7a W6a W7b W7a",
            "F0a F1a F2a F0b F3a F1b F4a F2b I0b W0b F3b I1b W1b F5a I0a W0a F4b I2b W2b F6a I1a "
            "W1a F5b I3b W3b F7a I2a W2a F6b I4b W4b I3a W3a F7b I5b W5b I4a I6b I5a I7b I6a W4a "
            "I7a W5a W6b W7b W6a W7a",
            "F0a F0b F1a F1b F2a F2b F3a F3b I0b W0b F4a I0a W0a F4b I1b W1b F5a I1a W1a F5b I2b "
            "W2b F6a I2a W2a F6b I3b W3b F7a I3a W3a F7b I4b W4b I4a I5b I5a I6b I6a I7b I7a W4a "
            "W5b W6b W7b W5a W6a W7a"});
}

TEST_CASE("an encoder before a V runs ahead of the stage that it feeds", "[builders]") {
  StageGraph graph = ChainGraph({0, 1, 2, 2, 1});
  graph.stages[0].encoder = true;
  CHECK(Texts(BuildSchedule("zb_v", graph, 3))[0] == "0V0 0V1 0V2 0U0 0U1 0U2");
  const std::string many = Texts(BuildSchedule("zb_v", graph, 9))[0];
  CHECK(many.find("0V0 0V1 0V2 0V3 0V4 0U0 0V5") == 0);
}

TEST_CASE("forwards alone let the furthest go on", "[builders]") {
  CHECK(Texts(BuildForwards(Chain(2), 3)) ==
        std::vector<std::string>{"0F0 0F1 0F2", "1F0 1F1 1F2"});
  CHECK(Texts(BuildForwards(Chain(2, 2), 3)) ==
        std::vector<std::string>{"0F0 0F1 2F0 2F1 0F2 2F2", "1F0 1F1 3F0 3F1 1F2 3F2"});
  CHECK(Texts(BuildForwards(Chain(3, 2, Placement::kV), 3)) ==
        std::vector<std::string>{"0F0 0F1 0F2 5F0 5F1 5F2", "1F0 1F1 1F2 4F0 4F1 4F2",
                                 "2F0 3F0 2F1 3F1 2F2 3F2"});
}

TEST_CASE("interleaved of 4 ranks, 2 chunks and 8 micro-batches", "[builders]") {
  CHECK(ChunkTexts(BuildSchedule("interleaved", Chain(4, 2), 8)) ==
        std::vector<std::string>{
            "F0a F1a F2a F3a F0b F1b F2b F3b F4a F5a F6a B0b F7a B1b F4b B2b F5b B3b F6b B0a F7b "
            "B1a B2a B3a B4b B5b B6b B7b B4a B5a B6a B7a",
            "F0a F1a F2a F3a F0b F1b F2b F3b F4a B0b F5a B1b F6a B2b F7a B3b F4b B0a F5b B1a F6b "
            "B2a F7b B3a B4b B5b B6b B7b B4a B5a B6a B7a",
            "F0a F1a F2a F3a F0b F1b F2b B0b F3b B1b F4a B2b F5a B3b F6a B0a F7a B1a F4b B2a F5b "
            "B3a F6b B4b F7b B5b B6b B7b B4a B5a B6a B7a",
            "F0a F1a F2a F3a F0b B0b F1b B1b F2b B2b F3b B3b F4a B0a F5a B1a F6a B2a F7a B3a F4b "
            "B4b F5b B5b F6b B6b F7b B7b B4a B5a B6a B7a"});
}

// What ranks do that decide for themselves, step by step, in a pipeline whose passes all take one
// step: a backward where one can run, else a forward while fewer micro-batches than there are ranks
// from here on are in flight. One step more for backwards changes no order, so it is left out.
std::vector<std::string> GreedyOneForwardOneBackward(int ranks, int micro_batches) {
  std::vector<int> forwards(ranks, 0), backwards(ranks, 0);
  std::vector<std::string> texts(ranks);
  while (backwards[0] < micro_batches) {
    const std::vector<int> f = forwards, b = backwards;  // what was over when the step began
    for (int r = 0; r < ranks; ++r) {
      const int given = r == 0 ? micro_batches : f[r - 1];
      const int returned = r == ranks - 1 ? f[r] : b[r + 1];
      std::string op;
      if (b[r] < returned) {
        op = std::to_string(r) + "B" + std::to_string(backwards[r]++);
      } else if (f[r] < given && f[r] - b[r] < ranks - r) {
        op = std::to_string(r) + "F" + std::to_string(forwards[r]++);
      } else {
        continue;
      }
      texts[r] += (texts[r].empty() ? "" : " ") + op;
    }
  }
  return texts;
}

TEST_CASE("1f1b is what ranks do that prefer backwards", "[builders]") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
      CAPTURE(ranks, micro_batches);
      REQUIRE(Texts(Build1F1B(Chain(ranks), micro_batches)) ==
              GreedyOneForwardOneBackward(ranks, micro_batches));
    }
  }
}

TEST_CASE("every pass of every micro-batch is listed once", "[builders]") {
  for (const ScheduleKind& kind : ScheduleKinds()) {
    const std::string& name = kind.name;
    for (const int ranks : {1, 2, 3, 5}) {
      for (const int chunks : {1, 2, 3}) {
        const bool halves = kind.splits_backwards;
        const StageGraph graph = Chain(ranks, chunks, kind.placement);
        if (!kind.problem(graph).empty()) continue;
        for (const int micro_batches : {1, 2, 5, 6, 7}) {
          CAPTURE(name, ranks, chunks, micro_batches);
          const Schedule schedule = BuildSchedule(name, graph, micro_batches);
          REQUIRE(schedule.micro_batches == micro_batches);
          REQUIRE(schedule.graph == graph);
          std::vector<Op> ops, wanted;
          for (int rank = 0; rank < ranks; ++rank) {
            for (const Op& op : schedule.ranks[rank]) {
              REQUIRE(graph.stages[op.stage].rank == rank);
              ops.push_back(op);
            }
          }
          const auto kinds = halves ? std::vector{OpKind::kForward, OpKind::kInputGradient,
                                                  OpKind::kWeightGradient}
                                    : std::vector{OpKind::kForward, OpKind::kBackward};
          for (const OpKind kind : kinds) {
            for (int stage = 0; stage < ranks * chunks; ++stage) {
              for (int m = 0; m < micro_batches; ++m) wanted.push_back({kind, stage, m});
            }
          }
          std::sort(ops.begin(), ops.end());
          REQUIRE(ops == wanted);
        }
      }
    }
  }
}

// The encoder on its own rank: encoder -> splice stage -> LLM stage.
StageGraph EncoderRank() {
  StageGraph graph = ChainGraph({0, 1, 2});
  graph.stages[0].encoder = true;
  return graph;
}

TEST_CASE("an encoder's passes are V and U", "[builders]") {
  CHECK(Texts(BuildSchedule("gpipe", EncoderRank(), 2)) ==
        std::vector<std::string>{"0V0 0V1 0U0 0U1", "1F0 1F1 1B0 1B1", "2F0 2F1 2B0 2B1"});
  CHECK(Texts(BuildSchedule("1f1b", EncoderRank(), 3)) ==
        std::vector<std::string>{"0V0 0V1 0V2 0U0 0U1 0U2", "1F0 1F1 1B0 1F2 1B1 1B2",
                                 "2F0 2B0 2F1 2B1 2F2 2B2"});
}

// An encoder on rank 0 before two ranks with two chunks each.
StageGraph EncoderBeforeChunks() {
  StageGraph graph = ChainGraph({0, 1, 2, 1, 2});
  graph.stages[0].encoder = true;
  return graph;
}

TEST_CASE("an encoder on its own rank runs beside interleaved chunks", "[builders]") {
  const std::vector<std::string> texts =
      Texts(BuildSchedule("interleaved", EncoderBeforeChunks(), 6));
  // Rank 1 has run chunk 0 four times before its first backward of it: the encoder's fifth forward
  // stands before its own first backward.
  CHECK(texts[0] == "0V0 0V1 0V2 0V3 0V4 0U0 0V5 0U1 0U2 0U3 0U4 0U5");
  CHECK(texts[1] ==
        "1F0 1F1 3F0 3F1 1F2 3B0 1F3 3B1 3F2 1B0 3F3 1B1 1F4 3B2 1F5 3B3 3F4 1B2 3F5 1B3 3B4 3B5 "
        "1B4 1B5");
}

TEST_CASE("the chunks behind an encoder are run as without it", "[builders]") {
  for (const int micro_batches : {1, 2, 3, 6, 9}) {
    const auto alone = BuildSchedule("interleaved", Chain(2, 2), micro_batches).ranks;
    const auto behind = BuildSchedule("interleaved", EncoderBeforeChunks(), micro_batches).ranks;
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<Op> shifted = alone[rank];
      for (Op& op : shifted) ++op.stage;
      CHECK(behind[rank + 1] == shifted);
    }
    CHECK(behind[0].size() == 2 * static_cast<size_t>(micro_batches));
  }
}

TEST_CASE("1f1b runs ahead by the longest way to the loss", "[builders]") {
  // Encoder 0 -> encoder 1 -> splice stage 3 <- encoder 2; 3 -> 4.
  const StageGraph graph{{{.rank = 0, .next = {1}, .encoder = true},
                          {.rank = 1, .next = {3}, .encoder = true},
                          {.rank = 2, .next = {3}, .encoder = true},
                          {.rank = 3, .next = {4}},
                          {.rank = 4, .next = {}}}};
  const Schedule schedule = BuildSchedule("1f1b", graph, 8);
  for (const auto& [rank, ahead] : std::vector<std::pair<int, int>>{
           {0, 3 + 1}, {1, 2 + 1}, {2, 2 + 1}, {3, 1 + 1}, {4, 0 + 1}}) {
    const auto& list = schedule.ranks[rank];
    const auto first = std::find_if(list.begin(), list.end(),
                                    [](const Op& op) { return MakesInputGradient(op.kind); });
    CHECK(first - list.begin() == ahead);
  }
}

TEST_CASE("1f1b takes an encoder on the splice stage's rank as one with it", "[builders]") {
  StageGraph graph = ChainGraph({0, 0, 1});
  graph.stages[0].encoder = true;
  CHECK(Texts(BuildSchedule("1f1b", graph, 2)) ==
        std::vector<std::string>{"0V0 1F0 0V1 1F1 1B0 0U0 1B1 0U1", "2F0 2B0 2F1 2B1"});
}

void CheckRefused(const std::string& name, const StageGraph& graph, int micro_batches,
                  const std::string& message) {
  CHECK_THROWS_AS(BuildSchedule(name, graph, micro_batches), ConfigError);
  CHECK_THROWS_WITH(BuildSchedule(name, graph, micro_batches), message);
}

TEST_CASE("what a schedule cannot run is refused", "[builders]") {
  CheckRefused("1f2b", Chain(2), 4, "unknown schedule '1f2b'; did you mean '1f1b'?");
  CheckRefused(
      "best", Chain(2), 4,
      "unknown schedule 'best'; use naive, gpipe, 1f1b, zb_h1, interleaved, zb_v, pipedream_2bw");
  CheckRefused("gpipe", Chain(2), 0, "a step of 0 micro-batches; give 1 or more");
  CheckRefused("naive", {}, 1, "stage 0: the graph has no stages; give one at least");
  CheckRefused("1f1b", Chain(2, 2), 4,
               "schedule 1f1b: the stages come back to a rank that they have left; take "
               "interleaved, or give each rank consecutive stages");
  CheckRefused("zb_h1", Chain(2, 2), 4,
               "schedule zb_h1: the stages come back to a rank that they have left; take "
               "interleaved, or give each rank consecutive stages");
  const std::string advice =
      "; interleaved needs a chain dealt to the ranks in turn, as many stages on each, behind "
      "encoders with a rank each; take another schedule for other graphs";
  CheckRefused("interleaved", ChainGraph({0, 0, 1, 1}), 4,
               "schedule interleaved: stage 1 is on rank 0" + advice);
  CheckRefused("interleaved", ChainGraph({0, 1, 0}), 4,
               "schedule interleaved: 3 stages on 2 ranks" + advice);
  const std::string folded =
      "; zb_v needs a chain of two stages a rank that turns back at the last rank, behind encoders "
      "with a rank each; take another schedule for other graphs";
  CheckRefused("zb_v", Chain(2, 2), 4, "schedule zb_v: stage 2 is on rank 0" + folded);
  CheckRefused("zb_v", Chain(2), 4, "schedule zb_v: 2 stages on 2 ranks" + folded);
  StageGraph branched = Chain(2, 2);
  branched.stages[0].next = {1, 2};
  CheckRefused("interleaved", branched, 4,
               "schedule interleaved: stage 0 is not followed by the next alone" + advice);
  StageGraph shared = ChainGraph({0, 0, 1, 0, 1});
  shared.stages[0].encoder = true;
  CheckRefused("interleaved", shared, 4, "schedule interleaved: stage 1 is on rank 0" + advice);
  StageGraph alone = ChainGraph({0});
  alone.stages[0].encoder = true;
  CheckRefused("interleaved", alone, 4, "schedule interleaved: 0 stages on 0 ranks" + advice);
}

}  // namespace
}  // namespace equipoise
