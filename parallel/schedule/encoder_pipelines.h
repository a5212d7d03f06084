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
  // share the rank's list, so an op of one is to be costed at 1 / lanes of its seconds.
  int lanes = 1;
  int pieces = 1;         // stages on each rank: the smaller they are, the smaller a bubble fits
  bool trainable = true;  // false: forwards alone
  std::vector<bool> runs = {};  // [micro-batch] whether it has pictures; empty: all have

  // Stages of one encoder pipeline.
  int depth() const { return ranks * pieces; }
  // Encoder pipelines on an LLM pipeline of so many ranks.
  int count(int llm_ranks) const { return llm_ranks / ranks * lanes; }
  // The number of a stage in the graph of AddEncoderStages().
  int StageOf(int pipeline, int place) const { return pipeline * depth() + place; }
  bool Runs(int micro_batch) const { return runs.empty() || runs[micro_batch]; }
};

// The compute ops of an LLM schedule in a graph with the stages of the encoder pipelines, which
// come first: pipeline by pipeline, each in its order; the stages of the language model have
// numbers higher by as many. Nothing runs on the encoder stages yet (SetOwners()).
// Throws ConfigError where the pipelines do not divide the ranks, where `runs` has another number
// of micro-batches, and for a schedule with encoders or with several first stages.
Schedule AddEncoderStages(const Schedule& llm, const EncoderPipelines& encoder);

// Gives micro-batch i to encoder pipeline owners[i], or to none where that is negative: sets
// `work`, adds no ops.
void SetOwners(Schedule& schedule, const EncoderPipelines& encoder, const std::vector<int>& owners);

}  // namespace equipoise
