// Each builder writes the lists rank by rank from closed forms of the papers: how many warm-up
// forwards a rank runs, then which forward and backward alternate. Only the order matters, no
// times: the lists are right for any durations, and optimal where the paper assumes F, I and W
// equal. A list holds each stage's micro-batches in ascending order in each kind of pass, so that
// losses and gradients add up in the same order in every schedule; passes.h and validate.h rely on
// it.
//
// Schedules that need M to be a multiple or a minimum are built for a padded M; Lists::Add() drops
// ops of padding. Cost: O(stages x M) ops, each written once.

#include "parallel/schedule/builders.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/nearest.h"
#include "parallel/schedule/pipedream_2bw.h"

namespace equipoise {
namespace {

// The lists being built: appends a pass to the list of the rank that holds its stage.
class Lists {
 public:
  Lists(const StageGraph& graph, int micro_batches) {
    CheckGraph(graph);
    EQUIPOISE_CHECK(micro_batches >= 1, micro_batches, " micro-batches");
    schedule_.graph = graph;
    schedule_.micro_batches = micro_batches;
    schedule_.ranks.resize(graph.num_ranks());
    for (int rank = 0; rank < graph.num_ranks(); ++rank) chunks_.push_back(graph.StagesOf(rank));
  }

  void Forward(int stage, int micro_batch) {
    Add(IsEncoder(stage) ? OpKind::kEncoderForward : OpKind::kForward, stage, micro_batch);
  }
  void Backward(int stage, int micro_batch) {
    Add(IsEncoder(stage) ? OpKind::kEncoderBackward : OpKind::kBackward, stage, micro_batch);
  }
  // All stages (chunks) of a rank.
  void ForwardRank(int rank, int micro_batch) {
    for (const int stage : chunks_[rank]) Forward(stage, micro_batch);
  }
  void BackwardRank(int rank, int micro_batch) {
    const std::vector<int>& stages = chunks_[rank];
    for (size_t i = stages.size(); i-- > 0;) Backward(stages[i], micro_batch);
  }
  // An encoder's backward is not split: it takes the place of I, and its W is nothing.
  void InputGradient(int stage, int micro_batch) {
    if (IsEncoder(stage)) return Backward(stage, micro_batch);
    Add(OpKind::kInputGradient, stage, micro_batch);
  }
  void WeightGradient(int stage, int micro_batch) {
    if (!IsEncoder(stage)) Add(OpKind::kWeightGradient, stage, micro_batch);
  }
  void InputGradientsRank(int rank, int micro_batch) {
    const std::vector<int>& stages = chunks_[rank];
    for (size_t i = stages.size(); i-- > 0;) InputGradient(stages[i], micro_batch);
  }
  void WeightGradientsRank(int rank, int micro_batch) {
    const std::vector<int>& stages = chunks_[rank];
    for (size_t i = stages.size(); i-- > 0;) WeightGradient(stages[i], micro_batch);
  }
  // `ahead` forwards, then one forward and one backward in turn.
  void OneForwardOneBackward(int rank, int ahead) {
    const int all = schedule_.micro_batches;
    for (int m = 0; m < std::min(ahead, all); ++m) ForwardRank(rank, m);
    for (int m = 0; m < all; ++m) {
      if (m + ahead < all) ForwardRank(rank, m + ahead);
      BackwardRank(rank, m);
    }
  }

  // The largest number of forwards by which a stage runs ahead of its backwards: in 1F1B the number
  // of ranks after it.
  int MostAhead(int stage) const {
    int most = 0, forwards = 0, backwards = 0;
    for (const Op& op : schedule_.ranks[schedule_.graph.stages[stage].rank]) {
      if (op.stage != stage) continue;
      if (IsForward(op.kind)) ++forwards;
      if (MakesInputGradient(op.kind)) most = std::max(most, forwards - ++backwards);
    }
    return most;
  }

  // Lists encoders with one rank each in front of a chain that is already listed: they run one
  // micro-batch further ahead than the stages that they feed, as in 1F1B.
  void EncodersAhead(int encoders) {
    for (int encoder = encoders; encoder-- > 0;) {
      int ahead = 0;
      for (const int next : schedule_.graph.stages[encoder].next) {
        ahead = std::max(ahead, MostAhead(next) + 1);
      }
      OneForwardOneBackward(encoder, ahead);
    }
  }

  const std::vector<int>& StagesOf(int rank) const { return chunks_[rank]; }
  int num_ranks() const { return static_cast<int>(chunks_.size()); }
  Schedule Take() { return std::move(schedule_); }

 private:
  bool IsEncoder(int stage) const { return schedule_.graph.stages[stage].encoder; }

  // Micro-batches >= schedule_.micro_batches are padding.
  void Add(OpKind kind, int stage, int micro_batch) {
    if (micro_batch >= schedule_.micro_batches) return;
    schedule_.ranks[schedule_.graph.stages[stage].rank].push_back({kind, stage, micro_batch});
  }

  Schedule schedule_;
  std::vector<std::vector<int>> chunks_;  // by rank
};

// By rank, the number of ranks after it on the longest path to the loss; nullopt where a path
// returns to a rank that it has left. Relaxes edges until nothing changes, O(ranks x edges).
std::optional<std::vector<int>> Depths(const StageGraph& graph) {
  const int ranks = graph.num_ranks();
  std::vector<int> depths(ranks, 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (const StageNode& stage : graph.stages) {
      for (const int next : stage.next) {
        const int next_rank = graph.stages[next].rank;
        if (next_rank == stage.rank || depths[next_rank] + 1 <= depths[stage.rank]) continue;
        depths[stage.rank] = depths[next_rank] + 1;
        if (depths[stage.rank] >= ranks) return std::nullopt;
        changed = true;
      }
    }
  }
  return depths;
}

// Number of encoder stages in front of the others.
int NumEncoders(const StageGraph& graph) {
  const auto first = std::find_if(graph.stages.begin(), graph.stages.end(),
                                  [](const StageNode& stage) { return !stage.encoder; });
  return static_cast<int>(first - graph.stages.begin());
}

// Why the stages after the encoders are not a chain with this placement on the other ranks; "" if
// they are.
std::string ChainProblem(const StageGraph& graph, Placement placement) {
  const int encoders = NumEncoders(graph), ranks = graph.num_ranks() - encoders;
  const int stages = graph.num_stages() - encoders;
  if (ranks < 1 || stages % ranks != 0) {
    return fmt::format("{} stages on {} ranks", stages, ranks);
  }
  for (int stage = 0; stage < graph.num_stages(); ++stage) {
    const StageNode& node = graph.stages[stage];
    const int rank =
        stage < encoders ? stage : encoders + RankOfPlace(placement, stage - encoders, ranks);
    if (node.rank != rank) return fmt::format("stage {} is on rank {}", stage, node.rank);
    if (stage < encoders) continue;
    std::vector<int> next;
    if (stage + 1 < graph.num_stages()) next.push_back(stage + 1);
    if (node.next != next) return fmt::format("stage {} is not followed by the next alone", stage);
  }
  return "";
}

// A step by itself.
Schedule BuildStep2Bw(const StageGraph& graph, int micro_batches) {
  return BuildPipeDream2Bw(graph, micro_batches, /*begun=*/false, /*goes_on=*/false);
}

std::string NoProblem(const StageGraph& /*graph*/) { return ""; }

std::string ProblemOfOneWay(const StageGraph& graph) {
  return Depths(graph) ? ""
                       : "the stages come back to a rank that they have left; take interleaved, or "
                         "give each rank consecutive stages";
}

std::string ProblemOfLoop(const StageGraph& graph) {
  const std::string problem = ChainProblem(graph, Placement::kLoop);
  if (problem.empty()) return "";
  return problem +
         "; interleaved needs a chain dealt to the ranks in turn, as many stages on each, behind "
         "encoders with a rank each; take another schedule for other graphs";
}

std::string ProblemOfV(const StageGraph& graph) {
  std::string problem = ChainProblem(graph, Placement::kV);
  const int encoders = NumEncoders(graph), ranks = graph.num_ranks() - encoders;
  if (problem.empty() && graph.num_stages() - encoders != 2 * ranks) {
    problem = fmt::format("{} stages on {} ranks", graph.num_stages() - encoders, ranks);
  }
  if (problem.empty()) return "";
  return problem +
         "; zb_v needs a chain of two stages a rank that turns back at the last rank, behind "
         "encoders with a rank each; take another schedule for other graphs";
}

// The list of one rank of BuildZbV(), by which of its two stages comes next; each stage takes the
// micro-batches in order.
class TwoStages {
 public:
  // `down`: the stage on the arm of the V towards the last rank; `up`: on the arm back.
  TwoStages(Lists& lists, int down, int up) : lists_(lists), sides_{Counted{down}, Counted{up}} {}

  enum Side : uint8_t { kDown, kUp };
  void Forward(Side side) { lists_.Forward(sides_[side].stage, sides_[side].forwards++); }
  void InputGradient(Side side) { lists_.InputGradient(sides_[side].stage, sides_[side].inputs++); }
  void WeightGradient(Side side) {
    lists_.WeightGradient(sides_[side].stage, sides_[side].weights++);
  }
  void Backward(Side side) {
    InputGradient(side);
    WeightGradient(side);
  }
  int forwards(Side side) const { return sides_[side].forwards; }
  // The weight gradients whose input gradients are done.
  void RestOfWeightGradients(Side side) {
    while (sides_[side].weights < sides_[side].inputs) WeightGradient(side);
  }

 private:
  struct Counted {
    int stage;
    int forwards = 0, inputs = 0, weights = 0;
  };
  Lists& lists_;
  std::array<Counted, 2> sides_;
};

}  // namespace

Schedule BuildNaive(const StageGraph& graph, int micro_batches) {
  Lists lists(graph, micro_batches);
  for (int m = 0; m < micro_batches; ++m) {
    for (int stage = 0; stage < graph.num_stages(); ++stage) lists.Forward(stage, m);
    for (int stage = graph.num_stages(); stage-- > 0;) lists.Backward(stage, m);
  }
  return lists.Take();
}

Schedule BuildGPipe(const StageGraph& graph, int micro_batches) {
  Lists lists(graph, micro_batches);
  for (int rank = 0; rank < lists.num_ranks(); ++rank) {
    for (int m = 0; m < micro_batches; ++m) lists.ForwardRank(rank, m);
    for (int m = 0; m < micro_batches; ++m) lists.BackwardRank(rank, m);
  }
  return lists.Take();
}

Schedule Build1F1B(const StageGraph& graph, int micro_batches) {
  Lists lists(graph, micro_batches);
  const auto depths = Depths(graph);
  EQUIPOISE_CHECK(depths.has_value(), "the stages come back to a rank");
  for (int rank = 0; rank < lists.num_ranks(); ++rank) {
    lists.OneForwardOneBackward(rank, (*depths)[rank]);
  }
  return lists.Take();
}

Schedule BuildZbH1(const StageGraph& graph, int micro_batches) {
  Lists lists(graph, micro_batches);
  const auto depths = Depths(graph);
  EQUIPOISE_CHECK(depths.has_value(), "the stages come back to a rank");
  const int deepest = *std::max_element(depths->begin(), depths->end());
  for (int rank = 0; rank < lists.num_ranks(); ++rank) {
    const int ahead = std::min((*depths)[rank], micro_batches);
    const int later = deepest - (*depths)[rank];  // micro-batches by which W lags I
    for (int m = 0; m < ahead; ++m) lists.ForwardRank(rank, m);
    for (int m = 0; m < micro_batches; ++m) {
      if (m + ahead < micro_batches) lists.ForwardRank(rank, m + ahead);
      lists.InputGradientsRank(rank, m);
      if (m >= later) lists.WeightGradientsRank(rank, m - later);
    }
    for (int m = std::max(0, micro_batches - later); m < micro_batches; ++m) {
      lists.WeightGradientsRank(rank, m);
    }
  }
  return lists.Take();
}

// As in Megatron-LM: micro-batches go in groups of P, each group through the rank's chunks one
// after the other. With v chunks, the k-th forward of a rank is of
//   chunk (k mod P v) / P, micro-batch k / (P v) * P + k mod P
// and the k-th backward takes the chunks in reverse. Rank r runs 2 (P - r - 1) + (v - 1) P warm-up
// forwards.
Schedule BuildInterleaved(const StageGraph& graph, int micro_batches) {
  Lists lists(graph, micro_batches);
  const std::string problem = ChainProblem(graph, Placement::kLoop);
  EQUIPOISE_CHECK(problem.empty(), problem);
  const int encoders = NumEncoders(graph), stages = graph.num_stages() - encoders;
  const int ranks = lists.num_ranks() - encoders, chunks = stages / ranks;
  const int padded = (micro_batches + ranks - 1) / ranks * ranks, total = padded * chunks;
  const auto chunk = [&](int k) { return k % stages / ranks; };
  const auto micro_batch = [&](int k) { return k / stages * ranks + k % ranks; };
  for (int rank = 0; rank < ranks; ++rank) {
    const int first = encoders + rank;
    const auto forward = [&](int k) { lists.Forward(chunk(k) * ranks + first, micro_batch(k)); };
    const auto backward = [&](int k) {
      lists.Backward((chunks - 1 - chunk(k)) * ranks + first, micro_batch(k));
    };
    const int ahead = std::min((ranks - rank - 1) * 2 + (chunks - 1) * ranks, total);
    for (int k = 0; k < ahead; ++k) forward(k);
    for (int k = 0; k < total; ++k) {
      if (k + ahead < total) forward(k + ahead);
      backward(k);
    }
  }
  lists.EncodersAhead(encoders);
  return lists.Take();
}

Schedule BuildZbV(const StageGraph& graph, int micro_batches) {
  Lists lists(graph, micro_batches);
  const std::string problem = ProblemOfV(graph);
  EQUIPOISE_CHECK(problem.empty(), problem);
  const int encoders = NumEncoders(graph), ranks = lists.num_ranks() - encoders;
  const int padded = std::max(micro_batches, 2 * ranks - 1);
  for (int rank = 0; rank < ranks; ++rank) {
    constexpr auto kDown = TwoStages::kDown, kUp = TwoStages::kUp;
    TwoStages list(lists, encoders + rank, graph.num_stages() - 1 - rank);
    const int behind = ranks - rank;  // itself and the ranks after it
    // Warm-up: until the first micro-batch returns on the up arm, then until its gradient does.
    for (int i = 0; i < 2 * behind - 1; ++i) list.Forward(kDown);
    for (int i = 0; i < rank; ++i) {
      list.Forward(kUp);
      list.Forward(kDown);
    }
    for (int i = 0; i < behind; ++i) {
      list.Forward(kUp);
      list.Backward(kUp);
    }
    while (list.forwards(kUp) < list.forwards(kDown) || list.forwards(kDown) < padded) {
      if (list.forwards(kDown) < padded) list.Forward(kDown);
      list.Backward(kDown);
      list.Forward(kUp);
      list.Backward(kUp);
    }
    // Cool-down: other ranks wait for I only, so W fills the bubbles.
    for (int i = 0; i < rank; ++i) {
      list.InputGradient(kDown);
      list.InputGradient(kUp);
    }
    for (int i = 0; i < behind; ++i) {
      list.InputGradient(kDown);
      list.WeightGradient(kDown);
    }
    list.RestOfWeightGradients(kUp);
    list.RestOfWeightGradients(kDown);
  }
  lists.EncodersAhead(encoders);
  return lists.Take();
}

Schedule BuildForwards(const StageGraph& graph, int micro_batches) {
  Lists lists(graph, micro_batches);
  const std::vector<std::vector<int>> previous = graph.PreviousStages();
  std::vector<int> done(graph.stages.size(), 0);
  // Rounds of one forward a rank; all forwards count as equally long.
  for (bool moved = true; moved;) {
    moved = false;
    const std::vector<int> come = done;
    for (int rank = 0; rank < lists.num_ranks(); ++rank) {
      const std::vector<int>& stages = lists.StagesOf(rank);
      const auto next = std::find_if(stages.rbegin(), stages.rend(), [&](int stage) {
        const int m = come[stage];
        return m < micro_batches && std::all_of(previous[stage].begin(), previous[stage].end(),
                                                [&](int from) { return come[from] > m; });
      });
      if (next == stages.rend()) continue;
      lists.Forward(*next, done[*next]++);
      moved = true;
    }
  }
  return lists.Take();
}

const std::vector<ScheduleKind>& ScheduleKinds() {
  static const std::vector<ScheduleKind> kKinds = {
      {.name = "naive",
       .build = BuildNaive,
       .problem = NoProblem,
       .searched = false,
       .overlaps = false},
      {.name = "gpipe",
       .build = BuildGPipe,
       .problem = NoProblem,
       .searched = false,
       .forwards_first = true},
      {.name = "1f1b", .build = Build1F1B, .problem = ProblemOfOneWay},
      {.name = "zb_h1", .build = BuildZbH1, .problem = ProblemOfOneWay, .splits_backwards = true},
      {.name = "interleaved",
       .build = BuildInterleaved,
       .problem = ProblemOfLoop,
       .fewest_chunks = 2,
       .most_chunks = std::numeric_limits<int>::max()},
      {.name = "zb_v",
       .build = BuildZbV,
       .problem = ProblemOfV,
       .splits_backwards = true,
       .fewest_chunks = 2,
       .most_chunks = 2,
       .placement = Placement::kV},
      {.name = "pipedream_2bw",
       .build = BuildStep2Bw,
       .problem = ProblemOfOneWay,
       .searched = false,  // it trains otherwise
       .delays_updates = true},
  };
  return kKinds;
}

const ScheduleKind* FindSchedule(const std::string& name) {
  for (const ScheduleKind& kind : ScheduleKinds()) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

bool DelaysUpdates(const std::string& name) {
  const ScheduleKind* kind = FindSchedule(name);
  return kind != nullptr && kind->delays_updates;
}

std::string SuggestSchedule(const std::string& name) {
  std::vector<std::string> names;
  std::string all;
  for (const ScheduleKind& kind : ScheduleKinds()) {
    names.push_back(kind.name);
    all += (all.empty() ? "use " : ", ") + kind.name;
  }
  const std::string nearest = NearestName(name, names);
  return nearest.empty() ? all : "did you mean '" + nearest + "'?";
}

Schedule BuildSchedule(const std::string& name, const StageGraph& graph, int micro_batches) {
  CheckGraph(graph);
  if (micro_batches < 1) {
    throw ConfigError(fmt::format("a step of {} micro-batches; give 1 or more", micro_batches));
  }
  const ScheduleKind* kind = FindSchedule(name);
  if (kind == nullptr)
    throw ConfigError(fmt::format("unknown schedule '{}'; {}", name, SuggestSchedule(name)));
  const std::string problem = kind->problem(graph);
  if (!problem.empty()) throw ConfigError(fmt::format("schedule {}: {}", name, problem));
  return kind->build(graph, micro_batches);
}

}  // namespace equipoise
