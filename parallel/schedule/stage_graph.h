#pragma once

#include <optional>
#include <string>
#include <vector>

namespace equipoise {

// A pipeline stage: consecutive layers on one pipeline rank.
struct StageNode {
  int rank = 0;           // in the pipeline group
  std::vector<int> next;  // stages that take its output, ascending; none for the stage of the loss
  bool encoder = false;   // its passes are V and U
  // Which tensor ranks of its rank hold it, where copies of an encoder have fewer tensor ranks than
  // the language model: these are dealt to lanes, each with copies of its own. -1: all of them.
  int lane = -1;
  // Whether the stages before it need a gradient from it; false where everything before is frozen.
  bool needs_input_gradient = true;
  // Whether it has a trainable weight.
  bool needs_weight_gradient = true;

  bool operator==(const StageNode&) const = default;
};

// The flow of activations between stages: encoder stages -> splice stage -> LLM stages, or any
// other directed acyclic graph whose stages are numbered in topological order.
struct StageGraph {
  std::vector<StageNode> stages;

  int num_stages() const { return static_cast<int>(stages.size()); }
  // 1 + the highest rank that holds a stage.
  int num_ranks() const;
  // 1 + the highest lane; 1 where all tensor ranks hold all stages of their rank.
  int num_lanes() const;
  // Stages whose output `stage` takes, ascending.
  std::vector<int> Previous(int stage) const;
  // Previous() of every stage, for passes over many ops.
  std::vector<std::vector<int>> PreviousStages() const;
  // Whether the stage has anything to do in backward. A first stage has no input that needs a
  // gradient, so it has a backward only when it is trainable.
  bool HasBackward(int stage) const;
  // Stages of a rank, ascending: its chunks.
  std::vector<int> StagesOf(int rank) const;

  bool operator==(const StageGraph&) const = default;
};

// The chain stage s -> stage s + 1, on the given ranks; everything trainable.
StageGraph ChainGraph(const std::vector<int>& rank_of_stage);

// A fault of a graph: a stage's successor is not after it, does not exist, is listed twice or out
// of order, or lies in a lane that has not its input; a stage makes no gradient though one before
// it needs it; a lane holds no encoder; a rank is negative or holds no stage.
struct GraphFault {
  int stage = 0;
  std::string message;  // "it is followed by stage 9, which does not exist; the last is 3"
};
std::optional<GraphFault> FindGraphFault(const StageGraph& graph);

// Throws ConfigError "stage 0: MESSAGE" for the first fault.
void CheckGraph(const StageGraph& graph);

}  // namespace equipoise
