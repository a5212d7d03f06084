// The lists come from a run in unit times, a forward 1 and a backward 2: of all stages whose next
// pass has its inputs, the one that can start first runs it, a backward before a forward. O(ops x
// stages). In these times a step of M micro-batches takes 3 M + (S + 1) / 2 (rounded down), where
// 1F1B takes 3 M + 3 (S - 1).

#include "parallel/schedule/pipedream_2bw.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "configs/base/error.h"

namespace equipoise {
namespace {

constexpr int kForwardTime = 1, kBackwardTime = 2;

// By stage, the number of ranks after its own on the longest path to the loss.
std::vector<int> Depths(const StageGraph& graph) {
  std::vector<int> depths(graph.stages.size(), 0);
  for (size_t s = graph.stages.size(); s-- > 0;) {
    for (const int next : graph.stages[s].next) {
      const StageNode& after = graph.stages[static_cast<size_t>(next)];
      const int ranks = after.rank == graph.stages[s].rank ? 0 : 1;
      depths[s] = std::max(depths[s], depths[static_cast<size_t>(next)] + ranks);
    }
  }
  return depths;
}

class Lister {
 public:
  Lister(const StageGraph& graph, int micro_batches, bool begun, bool goes_on)
      : depths_(Depths(graph)), previous_(graph.PreviousStages()) {
    schedule_.graph = graph;
    schedule_.ranks.resize(static_cast<size_t>(graph.num_ranks()));
    schedule_.micro_batches = micro_batches;
    if (goes_on) {
      schedule_.micro_batches += micro_batches;
      schedule_.ahead.next = micro_batches;
      schedule_.ahead.after = PassesAheadOf(graph, micro_batches);
    }
    if (begun) schedule_.ahead.before = PassesAheadOf(graph, micro_batches);
    free_.assign(schedule_.ranks.size(), 0);
    const PassesAhead& done = schedule_.ahead.before;
    const std::vector<int> none(graph.stages.size(), 0);
    forwards_ = {begun ? done.forwards : none, {}};
    backwards_ = {begun ? done.backwards : none, {}};
    for (auto* passes : {&forwards_, &backwards_}) {
      for (const int count : passes->next) passes->end.emplace_back(static_cast<size_t>(count), 0);
    }
  }

  Schedule List() && {
    for (std::optional<Start> first = First(); first; first = First()) Run(*first);
    return std::move(schedule_);
  }

 private:
  // Of a kind, by stage: the number of the next one, from those of this step on to those of the
  // next, and when those before it have ended.
  struct Passes {
    std::vector<int> next;
    std::vector<std::vector<int>> end;  // [stage][micro-batch]
  };
  struct Start {
    int time = 0;
    bool forward = false;
    int stage = 0;
    auto operator<=>(const Start&) const = default;
  };

  const StageNode& Node(int stage) const {
    return schedule_.graph.stages[static_cast<size_t>(stage)];
  }
  int& FreeAt(int stage) { return free_[static_cast<size_t>(Node(stage).rank)]; }

  // When the pass has ended; nullopt: it has not run yet.
  static std::optional<int> EndOf(const Passes& passes, int stage, int micro_batch) {
    const std::vector<int>& ends = passes.end[static_cast<size_t>(stage)];
    if (static_cast<size_t>(micro_batch) >= ends.size()) return std::nullopt;
    return ends[static_cast<size_t>(micro_batch)];
  }

  // When a stage could start its next pass of a kind; nullopt: not yet, or never in this step.
  std::optional<Start> StartOf(int stage, bool forward) {
    const int m = (forward ? forwards_ : backwards_).next[static_cast<size_t>(stage)];
    const bool here = m < schedule_.micro_batches && (forward ? RunsForward(schedule_, stage, m)
                                                              : RunsBackward(schedule_, stage, m));
    if (!here || (forward && IsFull(stage))) return std::nullopt;
    Start start{FreeAt(stage), forward, stage};
    const auto wait_for = [&](const Passes& passes, int other) {
      const std::optional<int> end = EndOf(passes, other, m);
      if (end) start.time = std::max(start.time, *end);
      return end.has_value();
    };
    if (forward) {
      for (const int from : previous_[static_cast<size_t>(stage)]) {
        if (!wait_for(forwards_, from)) return std::nullopt;
      }
      return start;
    }
    if (!wait_for(forwards_, stage)) return std::nullopt;
    for (const int to : Node(stage).next) {
      if (Node(to).needs_input_gradient && !wait_for(backwards_, to)) return std::nullopt;
    }
    return start;
  }

  // Whether it has as many micro-batches in flight as in 1F1B.
  bool IsFull(int stage) const {
    const auto s = static_cast<size_t>(stage);
    return schedule_.graph.HasBackward(stage) &&
           forwards_.next[s] - backwards_.next[s] > depths_[s];
  }

  std::optional<Start> First() {
    std::optional<Start> first;
    for (int stage = 0; stage < schedule_.graph.num_stages(); ++stage) {
      for (const bool forward : {false, true}) {
        const std::optional<Start> start = StartOf(stage, forward);
        if (start && (!first || *start < *first)) first = start;
      }
    }
    return first;
  }

  void Run(const Start& start) {
    Passes& passes = start.forward ? forwards_ : backwards_;
    const bool encoder = Node(start.stage).encoder;
    OpKind kind = start.forward ? OpKind::kForward : OpKind::kBackward;
    if (encoder) kind = start.forward ? OpKind::kEncoderForward : OpKind::kEncoderBackward;
    int& next = passes.next[static_cast<size_t>(start.stage)];
    schedule_.ranks[static_cast<size_t>(Node(start.stage).rank)].push_back(
        {kind, start.stage, next++});
    const int end = start.time + (start.forward ? kForwardTime : kBackwardTime);
    passes.end[static_cast<size_t>(start.stage)].push_back(end);
    FreeAt(start.stage) = end;
  }

  Schedule schedule_;
  const std::vector<int> depths_;
  const std::vector<std::vector<int>> previous_;  // [stage]
  Passes forwards_, backwards_;
  std::vector<int> free_;  // [rank]
};

}  // namespace

PassesAhead PassesAheadOf(const StageGraph& graph, int micro_batches) {
  const std::vector<int> depths = Depths(graph);
  const int deepest = *std::max_element(depths.begin(), depths.end());
  PassesAhead ahead;
  for (size_t s = 0; s < depths.size(); ++s) {
    const int from_first = deepest - depths[s];
    // Rounded so that the last stage but one has as many as the last, or one less.
    const int backwards = (from_first + (deepest + 1) % 2) / 2;
    const int in_flight = depths[s] + (from_first > 0 ? 1 : 0);
    ahead.backwards.push_back(std::min(backwards, micro_batches));
    ahead.forwards.push_back(std::min(backwards + in_flight, micro_batches));
  }
  // What a stage takes, those before it have made.
  for (size_t s = depths.size(); s-- > 0;) {
    for (const int next : graph.stages[s].next) {
      ahead.forwards[s] = std::max(ahead.forwards[s], ahead.forwards[static_cast<size_t>(next)]);
    }
  }
  return ahead;
}

NextGradients NextGradientsOf(const StageGraph& graph, const PassesAhead& ahead, int stage) {
  const auto s = static_cast<size_t>(stage);
  if (!graph.stages[s].needs_weight_gradient || ahead.forwards.empty()) return NextGradients::kNone;
  if (ahead.backwards[s] > 0) return NextGradients::kAll;
  const bool loss = graph.stages[s].next.empty() && ahead.forwards[s] > 0;
  return loss ? NextGradients::kOfHead : NextGradients::kNone;
}

Schedule BuildPipeDream2Bw(const StageGraph& graph, int micro_batches, bool begun, bool goes_on) {
  CheckGraph(graph);
  EQUIPOISE_CHECK(micro_batches >= 1, micro_batches, " micro-batches");
  return Lister(graph, micro_batches, begun, goes_on).List();
}

}  // namespace equipoise
