#include "parallel/schedule/stage_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "configs/base/error.h"

namespace equipoise {
namespace {

std::optional<std::string> EdgeProblem(const StageGraph& graph, int stage) {
  const std::vector<int>& next = graph.stages[stage].next;
  for (size_t i = 0; i < next.size(); ++i) {
    if (next[i] < 0 || next[i] >= graph.num_stages()) {
      return fmt::format("it is followed by stage {}, which does not exist; the last is {}",
                         next[i], graph.num_stages() - 1);
    }
    if (next[i] <= stage) {
      return fmt::format(
          "it is followed by stage {}; number the stages so that those after a stage have higher "
          "numbers",
          next[i]);
    }
    if (i > 0 && next[i] == next[i - 1]) {
      return fmt::format("stage {} follows it twice; list it once", next[i]);
    }
    if (i > 0 && next[i] < next[i - 1]) {
      return "the stages after it are not in order; list them ascending";
    }
    const int lane = graph.stages[next[i]].lane;
    if (lane >= 0 && lane != graph.stages[stage].lane) {
      return fmt::format(
          "it is followed by stage {} in lane {}, which does not have its output; let it feed "
          "stages of its own lane, or of none",
          next[i], lane);
    }
    if (graph.HasBackward(stage) && !graph.stages[next[i]].needs_input_gradient) {
      return fmt::format(
          "it wants a gradient that stage {} does not make; let that one need its input gradient",
          next[i]);
    }
  }
  return std::nullopt;
}

}  // namespace

int StageGraph::num_ranks() const {
  int ranks = 0;
  for (const StageNode& stage : stages) ranks = std::max(ranks, stage.rank + 1);
  return ranks;
}

std::vector<int> StageGraph::Previous(int stage) const { return PreviousStages()[stage]; }

int StageGraph::num_lanes() const {
  int lanes = 1;
  for (const StageNode& stage : stages) lanes = std::max(lanes, stage.lane + 1);
  return lanes;
}

// Ignores invalid edges, which FindGraphFault() reports.
std::vector<std::vector<int>> StageGraph::PreviousStages() const {
  std::vector<std::vector<int>> previous(stages.size());
  for (int stage = 0; stage < num_stages(); ++stage) {
    for (const int next : stages[stage].next) {
      if (next > stage && next < num_stages()) previous[next].push_back(stage);
    }
  }
  return previous;
}

bool StageGraph::HasBackward(int stage) const {
  const StageNode& node = stages[stage];
  if (node.needs_weight_gradient || !node.needs_input_gradient) return node.needs_weight_gradient;
  // Nearest first: as a rule it is the stage right before.
  for (int before = stage; before-- > 0;) {
    const std::vector<int>& next = stages[before].next;
    if (std::find(next.begin(), next.end(), stage) != next.end()) return true;
  }
  return false;
}

std::vector<int> StageGraph::StagesOf(int rank) const {
  std::vector<int> chunks;
  for (int stage = 0; stage < num_stages(); ++stage) {
    if (stages[stage].rank == rank) chunks.push_back(stage);
  }
  return chunks;
}

StageGraph ChainGraph(const std::vector<int>& rank_of_stage) {
  StageGraph graph;
  for (const int rank : rank_of_stage) {
    if (!graph.stages.empty()) graph.stages.back().next = {graph.num_stages()};
    graph.stages.push_back({.rank = rank, .next = {}});
  }
  return graph;
}

std::optional<GraphFault> FindGraphFault(const StageGraph& graph) {
  if (graph.stages.empty()) return GraphFault{0, "the graph has no stages; give one at least"};
  const int stages = graph.num_stages();
  for (int stage = 0; stage < stages; ++stage) {
    const int rank = graph.stages[stage].rank;
    if (rank < 0 || rank >= stages) {
      return GraphFault{stage, fmt::format("it is on rank {}; {} stages lie on ranks 0 to {}", rank,
                                           stages, stages - 1)};
    }
    const int lane = graph.stages[stage].lane;
    if (lane < -1 || (lane >= 0 && !graph.stages[stage].encoder)) {
      return GraphFault{stage,
                        fmt::format("it is in lane {}; stages of an encoder have lanes, from "
                                    "0 on, and no others",
                                    lane)};
    }
    if (const auto problem = EdgeProblem(graph, stage)) return GraphFault{stage, *problem};
  }
  std::vector<bool> holds(graph.num_ranks(), false);
  for (const StageNode& node : graph.stages) holds[node.rank] = true;
  const auto empty = std::find(holds.begin(), holds.end(), false);
  if (empty == holds.end()) return std::nullopt;
  return GraphFault{stages - 1, fmt::format("rank {} holds no stage; give every rank below {} one",
                                            empty - holds.begin(), graph.num_ranks())};
}

void CheckGraph(const StageGraph& graph) {
  if (const auto fault = FindGraphFault(graph)) {
    throw ConfigError(fmt::format("stage {}: {}", fault->stage, fault->message));
  }
}

}  // namespace equipoise
