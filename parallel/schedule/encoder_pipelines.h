#pragma once

#include <vector>

#include "parallel/schedule/schedule.h"

namespace equipoise {

// An encoder with a parallel plan of its own on the ranks of the language model (Optimus, arXiv
// 2408.03505, section 4): copies of it, each a pipeline of `ranks` neighbouring ranks, cover the P
// ranks of one LLM pipeline. A micro-batch's pictures go through one of the m = P / ranks * lanes
// encoder pipelines, which then feeds the first stage of the language model.
struct EncoderPipelines {
  int ranks = 1;  // of an encoder pipeline (PP_enc); divides P
  // Encoder pipelines side by side on the tensor ranks of one pipeline rank: TP_llm / TP_enc. They
  // share the rank's list, of which each lane's tensor ranks run their own part (StageNode::lane).
  int lanes = 1;
  int pieces = 1;  // stages on each rank: the smaller they are, the smaller a bubble fits
  // By stage of a pipeline, as in StageNode; empty: all true. Where neither is, a stage has
  // forwards alone.
  std::vector<bool> needs_input_gradient = {}, needs_weight_gradient = {};
  std::vector<bool> runs = {};  // [micro-batch] whether it has pictures; empty: all have

  // Stages of one encoder pipeline.
  int depth() const { return ranks * pieces; }
  // Encoder pipelines on an LLM pipeline of so many ranks.
  int count(int llm_ranks) const { return llm_ranks / ranks * lanes; }
  // The number of a stage in the graph of AddEncoderStages().
  int StageOf(int pipeline, int place) const { return pipeline * depth() + place; }
  bool Runs(int micro_batch) const { return runs.empty() || runs[micro_batch]; }
  bool NeedsInputGradient(int place) const {
    return needs_input_gradient.empty() || needs_input_gradient[place];
  }
  bool NeedsWeightGradient(int place) const {
    return needs_weight_gradient.empty() || needs_weight_gradient[place];
  }
  bool HasBackward(int place) const {
    return NeedsWeightGradient(place) || (place > 0 && NeedsInputGradient(place));
  }
};

// The graph of a language model with the stages of the encoder pipelines, which come first:
// pipeline by pipeline, each in its order; the stages of the language model have numbers higher by
// as many. Throws ConfigError where the pipelines do not divide the ranks, and for a graph with
// encoders or with several first stages.
StageGraph WithEncoderStages(const StageGraph& llm, const EncoderPipelines& encoder);

// The compute ops of an LLM schedule in WithEncoderStages(). Nothing runs on the encoder stages yet
// (SetOwners()). Throws ConfigError as that, and where a table of `encoder` has another number of
// micro-batches or stages.
Schedule AddEncoderStages(const Schedule& llm, const EncoderPipelines& encoder);

// Gives micro-batch i to encoder pipeline owners[i], or to none where that is negative: sets
// `work`, adds no ops.
void SetOwners(Schedule& schedule, const EncoderPipelines& encoder, const std::vector<int>& owners);

// Owners of so many micro-batches, in turn: those with pictures are dealt to the encoder pipelines
// on so many ranks of the language model.
std::vector<int> RoundRobinOwners(const EncoderPipelines& encoder, int llm_ranks,
                                  int micro_batches);

}  // namespace equipoise
