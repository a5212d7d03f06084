#pragma once

#include <optional>
#include <string>
#include <vector>

namespace equipoise {

// One stage: consecutive layers on one pipeline rank.
struct StageNode {
  int rank = 0;           // in the pipeline group
  std::vector<int> next;  // stages that take its output, ascending; none for the stage of the loss
  bool encoder = false;   // its passes are V and U
  // Whether the stages before it want a gradient from it; false where everything before is frozen.
  bool needs_input_gradient = true;
  // Whether it has a trainable weight.
  bool needs_weight_gradient = true;

  bool operator==(const StageNode&) const = default;
};

// How activations flow between stages: encoder stages -> splice stage -> LLM stages, or any other
// graph without cycles in which a stage's number is lower than those of the stages after it.
struct StageGraph {
  std::vector<StageNode> stages;

  int num_stages() const { return static_cast<int>(stages.size()); }
  // 1 + the highest rank that holds a stage.
  int num_ranks() const;
  // Stages whose output `stage` takes, ascending.
  std::vector<int> Previous(int stage) const;
  // Previous() of every stage, for passes over many ops.
  std::vector<std::vector<int>> PreviousStages() const;
  // Whether any backward op of the stage has something to do: a first stage has no input whose
  // gradient anything could want, so it has one only when it is trainable.
  bool HasBackward(int stage) const;
  // Stages of a rank, ascending: its chunks.
  std::vector<int> StagesOf(int rank) const;

  bool operator==(const StageGraph&) const = default;
};

// Stage s -> stage s + 1, on the given ranks; everything trainable.
StageGraph ChainGraph(const std::vector<int>& rank_of_stage);

// What is wrong with a graph: a stage's successor is not after it, does not exist, or is listed
// twice or out of order; it makes no gradient though a stage before it wants one; a rank is
// negative or holds no stage.
struct GraphFault {
  int stage = 0;
  std::string message;  // "it is followed by stage 9, which does not exist; the last is 3"
};
std::optional<GraphFault> FindGraphFault(const StageGraph& graph);

// Throws ConfigError "stage 0: MESSAGE" for the first fault.
void CheckGraph(const StageGraph& graph);

}  // namespace equipoise
