// A frozen encoder that runs a step ahead in the bubbles: three steps in a row of random pipelines,
// proved by the validator, and held against bounds in simulated time.
#include "parallel/schedule/prefetch.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/fill_bubbles.h"
#include "parallel/schedule/passes.h"
#include "parallel/schedule/validate.h"

namespace equipoise {
namespace {

StageGraph GraphOf(const std::string& schedule, int ranks, int chunks) {
  std::vector<int> rank_of_stage;
  const Placement placement = FindSchedule(schedule)->placement;
  for (int place = 0; place < ranks * chunks; ++place) {
    rank_of_stage.push_back(RankOfPlace(placement, place, ranks));
  }
  return ChainGraph(rank_of_stage);
}

// A pipeline that takes several steps, each with other pictures.
struct Pipeline {
  std::string schedule = "1f1b";
  int ranks = 2, chunks = 1, micro_batches = 4;
  EncoderPipelines encoder;  // without `runs`
  EncoderPlacement placement = EncoderPlacement::kOptimus;
  SimulationCosts costs;

  void Freeze() {
    encoder.needs_input_gradient.assign(static_cast<size_t>(encoder.depth()), false);
    encoder.needs_weight_gradient = encoder.needs_input_gradient;
  }
  Schedule Text() const {
    return BuildSchedule(schedule, GraphOf(schedule, ranks, chunks), micro_batches);
  }
  EncoderPipelines With(const std::vector<bool>& runs) const {
    EncoderPipelines with = encoder;
    with.runs = runs;
    return with;
  }
  int encoder_stages() const { return encoder.count(ranks) * encoder.depth(); }
  std::vector<bool> All() const {
    return std::vector<bool>(static_cast<size_t>(micro_batches), true);
  }

  Schedule First(const std::vector<bool>& runs, const std::vector<bool>& next) const {
    const EncoderPipelines with = With(runs);
    return PrefetchNext(FillBubbles(Text(), with, costs, placement), with, next, costs);
  }
  Schedule Later(const std::vector<bool>& runs, const std::vector<int>& owners,
                 const std::vector<bool>& next) const {
    const EncoderPipelines with = With(runs);
    return PrefetchNext(TakeFeatures(Text(), with, owners), with, next, Taken());
  }
  SimulationCosts Taken() const { return WithTaken(costs, micro_batches); }
  std::vector<int> Owners(const Schedule& before) const {
    return NextOwners(before, encoder, micro_batches);
  }
  // A step in the middle of a run in which everything has pictures.
  Schedule Steady() const { return Later(All(), Owners(First(All(), All())), All()); }
  double TextSeconds() const {
    return SimulateTimes(AddReductions(AddEncoderStages(Text(), encoder)), costs).step_s;
  }
};

// Forward of the language model 1 on a rank, of the encoder `encoder_s` on a copy.
Pipeline EvenPipeline(const std::string& schedule, int ranks, int micro_batches, double encoder_s,
                      int pieces = 1) {
  Pipeline pipeline;
  pipeline.schedule = schedule;
  pipeline.ranks = ranks;
  pipeline.chunks = FindSchedule(schedule)->fewest_chunks;
  pipeline.micro_batches = micro_batches;
  pipeline.encoder.pieces = pieces;
  pipeline.Freeze();
  const double text_s = 1.0 / pipeline.chunks, piece_s = encoder_s / pieces;
  pipeline.costs.seconds = [=](const Op& op) {
    if (op.kind == OpKind::kEncoderForward) return piece_s;
    if (!IsCompute(op.kind)) return 0.0;
    return op.kind == OpKind::kBackward ? 2 * text_s : text_s;
  };
  return pipeline;
}

Pipeline DrawPipeline(std::mt19937& engine) {
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(engine);
  };
  const std::vector<std::string> names = {"naive", "gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"};
  Pipeline drawn;
  drawn.schedule = names[static_cast<size_t>(draw(0, 5))];
  drawn.ranks = draw(1, 6);
  drawn.chunks = drawn.schedule == "interleaved" ? draw(2, 3) : drawn.schedule == "zb_v" ? 2 : 1;
  drawn.micro_batches = draw(1, 9);
  do {
    drawn.encoder.ranks = draw(1, drawn.ranks);
  } while (drawn.ranks % drawn.encoder.ranks != 0);
  drawn.encoder.pieces = draw(1, 3);
  drawn.encoder.lanes = draw(1, 2);
  drawn.Freeze();
  drawn.placement = kBubblePlacements[static_cast<size_t>(draw(0, 3))];
  const auto seed = static_cast<unsigned>(engine());
  const double share = 0.2 * draw(1, 6);
  drawn.costs.seconds = [seed, share](const Op& op) {
    if (!IsCompute(op.kind)) return op.kind == OpKind::kReduce ? 0.3 : 0.1;
    std::minstd_rand each(seed + 7919U * static_cast<unsigned>(op.stage) +
                          104729U * static_cast<unsigned>(op.micro_batch) +
                          15485863U * static_cast<unsigned>(op.kind));
    each.discard(5);
    // Now and then no time at all.
    const double seconds = std::uniform_real_distribution<double>(0, 1)(each);
    return (op.kind == OpKind::kEncoderForward ? share : 1) * (seconds < 0.03 ? 0 : 0.5 + seconds);
  };
  drawn.costs.bytes = [](const Op& op) { return 1.0 + op.micro_batch % 3; };
  drawn.costs.link = [](int from, int to) { return LinkModel{0.01 + 0.01 * (from < to), 100}; };
  return drawn;
}

std::vector<bool> DrawPictures(std::mt19937& engine, int micro_batches) {
  const int share = std::uniform_int_distribution<int>(0, 4)(engine);
  std::vector<bool> runs;
  for (int i = 0; i < micro_batches; ++i)
    runs.push_back(std::uniform_int_distribution<int>(1, 4)(engine) <= share);
  return runs;
}

// The compute ops of the language model on each rank, numbered as without encoders.
std::vector<std::vector<Op>> TextOps(const Schedule& schedule, int encoder_stages) {
  std::vector<std::vector<Op>> ranks;
  for (const std::vector<Op>& list : schedule.ranks) {
    std::vector<Op>& ops = ranks.emplace_back();
    for (Op op : list) {
      op.stage -= encoder_stages;
      if (IsCompute(op.kind) && op.stage >= 0) ops.push_back(op);
    }
  }
  return ranks;
}

// The stages on which a micro-batch is encoded, ascending.
std::vector<int> EncodedOn(const Schedule& schedule, int micro_batch) {
  std::vector<int> stages;
  for (const std::vector<Op>& list : schedule.ranks) {
    for (const Op& op : list) {
      if (op.kind == OpKind::kEncoderForward && op.micro_batch == micro_batch)
        stages.push_back(op.stage);
    }
  }
  std::sort(stages.begin(), stages.end());
  return stages;
}

std::vector<int> StagesOfCopy(const EncoderPipelines& encoder, int copy) {
  std::vector<int> stages;
  for (int place = 0; place < encoder.depth(); ++place)
    stages.push_back(encoder.StageOf(copy, place));
  return stages;
}

std::string FaultOf(const Schedule& schedule) {
  const auto fault = FindFault(schedule);
  return fault ? fault->message : "";
}

TEST_CASE("steps that encode for the next one are valid, whatever the pipeline") {
  std::mt19937 engine(20261125);
  for (int round = 0; round < 300; ++round) {
    const Pipeline pipeline = DrawPipeline(engine);
    const int batch = pipeline.micro_batches, stages = pipeline.encoder_stages();
    const auto draw = [&] { return DrawPictures(engine, batch); };
    const std::vector<bool> first = draw(), second = draw(), third = draw();
    INFO("round " << round << ": " << pipeline.schedule << ", " << pipeline.ranks << " ranks");
    const Schedule one = pipeline.First(first, second);
    const std::vector<int> owners = pipeline.Owners(one);
    const Schedule two = pipeline.Later(second, owners, third);
    const Schedule last = pipeline.Later(third, pipeline.Owners(two), {});
    for (const Schedule* step : {&one, &two, &last}) {
      CHECK(FaultOf(*step).empty());
      CHECK(StuckWithBlockingTransfers(*step).empty());
      CHECK(TextOps(*step, stages) == pipeline.Text().ranks);
    }
    CHECK(last.micro_batches == batch);
    REQUIRE(two.micro_batches == 2 * batch);
    for (int i = 0; i < batch; ++i) {
      const int owner = owners[static_cast<size_t>(i)];
      REQUIRE((owner >= 0) == second[static_cast<size_t>(i)]);
      const std::vector<int> encoded = EncodedOn(one, batch + i), taken = EncodedOn(two, i);
      if (owner < 0) {
        CHECK((encoded.empty() && taken.empty()));
        continue;
      }
      CHECK(encoded == StagesOfCopy(pipeline.encoder, owner));
      CHECK(taken == std::vector<int>{encoded.back()});
    }
    CHECK(pipeline.Later(second, owners, third) == two);
  }
}

TEST_CASE("a step that encodes for the next one is within its bounds") {
  std::mt19937 engine(4711);
  for (int round = 0; round < 200; ++round) {
    Pipeline pipeline = DrawPipeline(engine);
    pipeline.costs.link = nullptr;
    const Schedule steady = pipeline.Steady();
    const Simulation simulated = SimulateTimes(steady, pipeline.Taken());
    double work = 0, ahead = 0;
    for (const std::vector<Op>& list : steady.ranks) {
      for (const Op& op : list) {
        if (!IsCompute(op.kind)) continue;
        const double seconds = SecondsOfOp(pipeline.Taken(), op);
        // One of a lane leaves the others' ranks free.
        const bool in_lane = op.kind == OpKind::kEncoderForward;
        work += in_lane ? seconds / pipeline.encoder.lanes : seconds;
        if (op.kind == OpKind::kEncoderForward) ahead += seconds;
      }
    }
    const double text = pipeline.TextSeconds();
    CHECK(simulated.step_s >= text - 1e-9);
    CHECK(simulated.step_s >= work / pipeline.ranks);
    CHECK(simulated.step_s <= text + ahead + 1e-9);
  }
}

// The table of docs/optimus.md. What bubbles can hold costs a step nothing: those of 1F1B on 4
// ranks are 9 of 33 seconds, and 8 micro-batches whose encoder takes 4 each are 8 of work on each.
TEST_CASE("a step ahead the encoder costs what bubbles cannot hold") {
  struct Row {
    const char* schedule;
    double encoder_s, text, without, ahead;
  };
  const std::vector<Row> rows = {{"gpipe", 1, 33, 34, 33},
                                 {"gpipe", 4, 33, 41, 33},
                                 {"1f1b", 1, 33, 34, 33},
                                 {"1f1b", 4, 33, 38, 33},
                                 {"interleaved", 1, 28.5, 29.5, 28.5},
                                 {"interleaved", 2, 28.5, 31, 28.5},
                                 {"interleaved", 4, 28.5, 35, 32},
                                 {"zb_h1", 1, 27, 28, 27},
                                 {"zb_h1", 2, 27, 29, 28},
                                 {"zb_v", 1, 25.5, 27, 26},
                                 {"zb_v", 2, 25.5, 29.5, 28}};
  for (const Row& row : rows) {
    INFO(row.schedule << ", encoder " << row.encoder_s);
    const Pipeline pipeline = EvenPipeline(row.schedule, 4, 8, row.encoder_s, /*pieces=*/8);
    const Schedule filled = FillBubbles(pipeline.Text(), pipeline.With(pipeline.All()),
                                        pipeline.costs, pipeline.placement);
    CHECK(pipeline.TextSeconds() == Approx(row.text));
    CHECK(SimulateTimes(filled, pipeline.costs).step_s == Approx(row.without));
    CHECK(SimulateTimes(pipeline.Steady(), pipeline.Taken()).step_s == Approx(row.ahead));
  }
  // A single rank has no bubbles.
  const Pipeline alone = EvenPipeline("1f1b", 1, 4, 2);
  CHECK(SimulateTimes(alone.Steady(), alone.Taken()).step_s == Approx(4 * 3 + 4 * 2));
}

TEST_CASE("gradients are reduced before what is encoded behind the last backward") {
  const Pipeline pipeline = EvenPipeline("1f1b", 2, 4, 50);
  const Schedule steady = pipeline.Steady();
  for (const std::vector<Op>& list : steady.ranks) {
    const auto kind = [](OpKind wanted) {
      return [wanted](const Op& op) { return op.kind == wanted; };
    };
    const auto reduce = std::find_if(list.begin(), list.end(), kind(OpKind::kReduce));
    const auto ahead = std::find_if(reduce, list.end(), kind(OpKind::kEncoderForward));
    REQUIRE(reduce != list.end());
    CHECK(ahead != list.end());
    CHECK(list.back().kind == OpKind::kOptimizer);
  }
}

TEST_CASE("a wrong order of what is encoded ahead is told") {
  const Pipeline pipeline = EvenPipeline("1f1b", 2, 2, 1);
  const Schedule steady = pipeline.Steady();
  const auto place = [](std::vector<Op>& list, int micro_batch) {
    return std::find_if(list.begin(), list.end(), [&](const Op& op) {
      return op.kind == OpKind::kEncoderForward && op.micro_batch == micro_batch;
    });
  };
  int missing = 0, swapped = 0;
  for (size_t r = 0; r < steady.ranks.size(); ++r) {
    for (int next = 2; next < 4; ++next) {
      Schedule wrong = steady;
      std::vector<Op>& list = wrong.ranks[r];
      const auto ahead = place(list, next);
      if (ahead == list.end()) continue;
      const Op op = *ahead;
      list.erase(ahead);
      CHECK(FaultOf(wrong).find(ToString(op) + " is missing before this") != std::string::npos);
      ++missing;
      // In front of what its copy takes of the step before.
      const auto taken = std::find_if(list.begin(), list.end(), [&](const Op& other) {
        return other.kind == OpKind::kEncoderForward && other.micro_batch < 2;
      });
      if (taken == list.end()) continue;
      list.insert(taken, op);
      CHECK(FaultOf(wrong).find("the forwards of a stage ascend") != std::string::npos);
      ++swapped;
    }
  }
  CHECK(missing == 2);
  CHECK(swapped > 0);
}

}  // namespace
}  // namespace equipoise
