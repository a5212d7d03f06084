#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "parallel/placement.h"

namespace equipoise {

// What of a layer is not kept from forward to backward but computed again. kAttention and kMlp are
// the halves of a block: only the half's input is kept. Layers without halves keep all for these.
enum class Recompute : uint8_t { kNone, kAttention, kMlp, kFull };
// "none", "attention", "mlp", "full".
std::string ToString(Recompute recompute);
// REQUIRES: one of those words.
Recompute ParseRecompute(const std::string& word);

// Everything that tells one distributed execution from another, as a plain value. All plans of a
// model train it alike; they differ in speed, memory and communication.
struct Plan {
  int data = 1, pipeline = 1, tensor = 1;  // sizes of the mesh's axes
  // Pipeline ranks in front that hold the encoder, vision and projector, alone: a stage each.
  // 0: its layers are the first of those that all ranks share.
  int encoder_ranks = 0;
  int chunks = 1;                          // stages of each other pipeline rank
  Placement placement = Placement::kLoop;  // of those stages
  std::string schedule = "1f1b";           // a name of parallel/schedule/builders.h, or a file
  std::string schedule_text;               // what that file holds; empty for a name
  int zero = 0;                            // 1: optimizer state is sharded over the data ranks
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
  Mesh mesh() const { return Mesh(data, pipeline, tensor); }

  bool operator==(const Plan&) const = default;
};

// "data 4 x pipeline 8 x tensor 2", "data 1 x pipeline 3 (1 for the encoder) x tensor 1".
std::string DescribeAxes(const Plan& plan);

}  // namespace equipoise
