#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "parallel/placement.h"
#include "parallel/sharded_state.h"

namespace equipoise {

// Recomputation (activation checkpointing) of a layer: which of its activations are computed again
// in backward in place of being kept. kAttention and kMlp are the halves of a transformer block, of
// which only the input is kept; layers without halves then keep everything.
enum class Recompute : uint8_t { kNone, kAttention, kMlp, kFull };
// "none", "attention", "mlp", "full".
std::string ToString(Recompute recompute);
inline std::string FieldValue(Recompute recompute) { return ToString(recompute); }
// REQUIRES: one of those words.
Recompute ParseRecompute(const std::string& word);

// A distributed execution of a model, as a plain value. All plans of a model train it alike; they
// differ in speed, memory and communication.
struct Plan {
  int data = 1, pipeline = 1, tensor = 1;  // sizes of the mesh's axes
  // The first pipeline ranks, which hold the encoder (vision and projector) and nothing else, one
  // stage each. 0: inline, the encoder's layers are the first of those that all ranks share.
  int encoder_ranks = 0;
  int chunks = 1;                          // stages of each other pipeline rank (virtual stages)
  Placement placement = Placement::kLoop;  // of those stages
  std::string schedule = "1f1b";           // a name of parallel/schedule/builders.h, or a file
  std::string schedule_text;               // what that file holds; empty for a name
  ShardedState sharded = ShardedState::kNone;  // over the data ranks (ZeRO)
  // Stage s holds the layers stage_begins[s] .. stage_begins[s + 1] - 1 of the model.
  std::vector<int> stage_begins;
  std::vector<Recompute> recompute;  // by layer of the model; empty: none

  int num_ranks() const { return data * pipeline * tensor; }
  int num_stages() const { return encoder_ranks + (pipeline - encoder_ranks) * chunks; }
  // The pipeline rank of a stage.
  int RankOfStage(int stage) const {
    if (stage < encoder_ranks) return stage;
    return encoder_ranks + RankOfPlace(placement, stage - encoder_ranks, pipeline - encoder_ranks);
  }
  // The stages of a pipeline rank, ascending.
  std::vector<int> StagesOf(int pipeline_rank) const;
  // Whether each data rank holds only its share of that state.
  bool IsSharded(ShardedState state) const { return sharded >= state; }
  // Data ranks over which one copy of the optimizer's state is spread.
  int optimizer_shards() const { return IsSharded(ShardedState::kOptimizer) ? data : 1; }
  // Layers of each stage, in order.
  std::vector<int> stage_layers() const;
  // Tensor ranks are neighbours, since they talk most and mpirun places neighbours on one machine;
  // then come pipeline and data.
  Mesh mesh() const;

  // Each field once, for reports, under its key in a configuration's `parallel` or `balance`
  // (configs/yaml/fields.h). `placement` and `schedule_text` follow from `schedule`.
  template <class Visitor>
  void VisitFields(Visitor& visit) const {
    const std::vector<int> layers = stage_layers();
    visit("data", data, "data-parallel ranks");
    visit("pipeline", pipeline, "pipeline ranks");
    visit("tensor", tensor, "ranks that share out each layer");
    visit("encoder_ranks", encoder_ranks, "pipeline ranks of a disaggregated encoder; 0: inline");
    visit("schedule", schedule, "order of the pipeline's passes");
    visit("chunks", chunks, "stages of each pipeline rank that is not the encoder's");
    visit("zero", sharded, "stage of ZeRO");
    visit("stage_layers", layers, "layers of each stage, in order");
    visit("recompute_layers", recompute, "what of each layer is computed again");
  }
  bool operator==(const Plan&) const = default;
};

// "data 4 x pipeline 8 x tensor 2", "data 1 x pipeline 3 (1 for the encoder) x tensor 1".
std::string DescribeAxes(const Plan& plan);

}  // namespace equipoise
