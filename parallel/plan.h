#pragma once

#include <string>
#include <vector>

#include "parallel/encoder_placement.h"
#include "parallel/mesh.h"
#include "parallel/placement.h"
#include "parallel/recompute.h"
#include "parallel/sharded_state.h"

namespace equipoise {

// Sizes of the axes of a plan's mesh.
struct Degrees {
  int data = 1, pipeline = 1, tensor = 1, context = 1;
};
// Tensor ranks are neighbours, since they talk most and mpirun places neighbours on one machine;
// then come context, pipeline and data. Throws ConfigError as Mesh does.
Mesh MeshOf(const Degrees& degrees);

// Consecutive layers of the model that are distributed over the ranks in one way: the encoder (with
// the connector), the language model, or all of them.
struct PlanComponent {
  bool encoder = false;  // its passes are V and U (parallel/schedule/op.h)
  int first_layer = 0;   // of the model; its layers end where the next component begins
  // Its ranks, of those of the plan. With more data ranks than the plan has, each data rank of the
  // plan holds several copies of it, side by side along the pipeline.
  Mesh mesh = MeshOf({});
  // With fewer tensor ranks than the plan has, as many copies of it lie side by side on those of
  // each of these copies, on `mesh` the first of them.
  int lanes = 1;
  int chunks = 1;                          // stages of each of its pipeline ranks (virtual stages)
  Placement placement = Placement::kLoop;  // of its stages on them

  // Of one copy.
  int num_stages() const { return mesh.size(Axis::kPipeline) * chunks; }
  bool operator==(const PlanComponent&) const = default;
};

// Consecutive layers of a model: begin <= i < end.
struct LayerSpan {
  int begin = 0, end = 0;
  int size() const { return end - begin; }
};

// A distributed execution of a model, as a plain value. All plans of a model train it alike; they
// differ in speed, memory and communication.
struct Plan {
  Mesh mesh = MeshOf({});  // of all ranks
  EncoderPlacement encoder = EncoderPlacement::kInline;
  // In the order of their layers; the last holds the head. One where the encoder is inline; where
  // it is disaggregated, slices of the mesh along the pipeline; else each has all ranks.
  std::vector<PlanComponent> components = {PlanComponent()};
  std::string schedule = "1f1b";               // a name of parallel/schedule/builders.h, or a file
  std::string schedule_text;                   // what that file holds; empty for a name
  ShardedState sharded = ShardedState::kNone;  // over the ranks with the same weights (ZeRO)
  // How many of these, neighbours, share out one copy of that state (hierarchical ZeRO; hybrid
  // sharding of FSDP, arXiv 2304.11277, section 3.2.2); a divisor of their number. 0: all of them.
  int zero_ranks = 0;
  // What of that state, shared out or not, lies in host memory in place of a GPU's: the
  // optimizer's, with it gradients, with both parameters (ZeRO-Infinity, arXiv 2104.07857). Passes
  // have the last two layer by layer then, as where they are shared out; REQUIRES: `sharded` has
  // these.
  ShardedState offloaded = ShardedState::kNone;
  // Tensor ranks share out rows too (sequence parallelism; models/spec/tensor_parallel.h).
  bool sequence = false;
  // Where each stage begins, counted through all components and one copy of each, and the number of
  // layers: see LayersOf().
  std::vector<int> stage_begins;
  std::vector<Recompute> recompute;  // by layer of the model; empty: none

  int data() const { return mesh.size(Axis::kData); }
  int pipeline() const { return mesh.size(Axis::kPipeline); }
  int tensor() const { return mesh.size(Axis::kTensor); }
  // Ranks that share out the tokens of each micro-batch of a data rank (context parallelism;
  // models/spec/tensor_parallel.h).
  int context() const { return mesh.size(Axis::kContext); }
  // Ranks that hold the same weights, and share out the state of training (ZeRO).
  int same_weights() const { return data() * context(); }
  int num_ranks() const { return mesh.size(); }
  // Ranks that share out the rows of layers that can be.
  int row_shares() const { return context() * (sequence ? tensor() : 1); }
  // Pipeline ranks of the encoder, or of each of its copies; 0 where it is inline.
  int encoder_ranks() const;
  // Stages of the encoder on each of its pipeline ranks; 0 where it is inline.
  int encoder_chunks() const;
  // Tensor ranks of the encoder, or of each of its copies; 0 where it is inline.
  int encoder_tensor() const;
  // Copies of the encoder side by side on the tensor ranks of a pipeline rank: 1 unless it has
  // fewer tensor ranks than the language model.
  int encoder_lanes() const { return components.front().lanes; }
  // Copies of the encoder on the ranks of a data rank: 1 unless it lies in the bubbles.
  int encoder_copies() const { return CopiesOf(components.front()); }
  int CopiesOf(const PlanComponent& component) const {
    return component.mesh.size(Axis::kData) / data() * component.lanes;
  }
  // Stages of each pipeline rank of the language model.
  int chunks() const { return components.back().chunks; }

  // Of all copies. Copies come one after the other, those of the encoder before the language model.
  int num_stages() const;
  const PlanComponent& ComponentOfStage(int stage) const;
  LayerSpan LayersOf(int stage) const;
  // Which copy of its component a stage belongs to.
  int CopyOf(int stage) const { return Find(stage).copy; }
  // The stage that takes a stage's output; -1 for the stage of the loss.
  int NextStage(int stage) const;
  // The coordinate along the mesh's pipeline of the ranks that hold a stage.
  int RankOfStage(int stage) const;
  // The lane of the tensor ranks that hold a stage; -1: all of its pipeline rank hold it.
  int LaneOf(int stage) const;
  // The stages of a pipeline rank on the tensor ranks of a lane, ascending. Lanes hold the same.
  std::vector<int> StagesOf(int pipeline_rank, int lane = 0) const;
  // Whether each of the ranks with the same weights holds only its share of that state.
  bool IsSharded(ShardedState state) const { return sharded >= state; }
  // Ranks over which one copy of the state that is shared out is spread; 1: each has a copy.
  int shards() const {
    if (!IsSharded(ShardedState::kOptimizer)) return 1;
    return zero_ranks > 0 ? zero_ranks : same_weights();
  }
  bool IsOffloaded(ShardedState state) const { return offloaded >= state; }
  // Whether a rank has that state of a layer whole only while the layer runs.
  bool IsByLayer(ShardedState state) const {
    return IsSharded(state) && (shards() > 1 || IsOffloaded(state));
  }
  // Layers of each stage, in order, of one copy of each component.
  std::vector<int> stage_layers() const;

  // Each field once, for reports, under its key in a configuration's `parallel` or `balance`
  // (configs/yaml/fields.h). What is left out follows from `schedule` and the layers.
  template <class Visitor>
  void VisitFields(Visitor& visit) const {
    const std::vector<int> layers = stage_layers();
    visit("data", data(), "data-parallel ranks");
    visit("pipeline", pipeline(), "pipeline ranks");
    visit("tensor", tensor(), "ranks that share out each layer");
    visit("context", context(), "ranks that share out the tokens of each micro-batch");
    visit("encoder", encoder, "where the image encoder lies");
    visit("encoder_ranks", encoder_ranks(), "pipeline ranks of the encoder or a copy; 0: inline");
    visit("encoder_chunks", encoder_chunks(), "its stages on each of these ranks; 0: inline");
    visit("encoder_tensor", encoder_tensor(), "tensor ranks of the encoder or a copy; 0: inline");
    visit("schedule", schedule, "order of the pipeline's passes");
    visit("chunks", chunks(), "stages of each pipeline rank that is not the encoder's");
    visit("zero", sharded, "stage of ZeRO");
    visit("zero_ranks", zero_ranks, "ranks that share out one copy of that state; 0: all");
    visit("sequence", sequence, "whether tensor ranks share out rows too");
    visit("stage_layers", layers, "layers of each stage, in order");
    visit("recompute_layers", recompute, "what of each layer is computed again");
  }
  bool operator==(const Plan&) const = default;

 private:
  // A stage's component and copy, the stage counted from that copy's first, and the number of the
  // component's first in stage_begins.
  struct StagePlace {
    const PlanComponent* component;
    int copy, stage, first;
  };
  StagePlace Find(int stage) const;
};

// A plan with all layers shared by all pipeline ranks: one component. Stages are not cut yet.
Plan InlinePlan(const Degrees& degrees, int chunks = 1, Placement placement = Placement::kLoop);

// A plan with the encoder, the model's first `encoder_layers` layers, on the first `encoder_ranks`
// pipeline ranks, one stage each, and the other layers on the other ranks: two components.
// REQUIRES: 1 <= encoder_ranks < degrees.pipeline.
Plan DisaggregatedPlan(const Degrees& degrees, int encoder_ranks, int encoder_layers,
                       int chunks = 1, Placement placement = Placement::kLoop);

// A plan with the encoder, the model's first `layers` layers, on all ranks: copies of it, each a
// pipeline of `ranks` ranks with `chunks` stages each, cover the pipeline of the language model,
// which has all ranks too. `tensor` ranks share each layer of a copy; 0: as many as share the
// language model's. REQUIRES: FillsBubbles(placement); `ranks` divides degrees.pipeline, `tensor`
// degrees.tensor.
struct BubbleEncoder {
  EncoderPlacement placement = EncoderPlacement::kOptimus;
  int ranks = 1, chunks = 1, layers = 1, tensor = 0;
};
Plan PlanInBubbles(const Degrees& degrees, const BubbleEncoder& encoder, int chunks = 1,
                   Placement placement = Placement::kLoop);

// "data 4 x pipeline 8 x tensor 2", "data 1 x pipeline 3 (1 for the encoder) x tensor 1".
std::string DescribeAxes(const Plan& plan);

}  // namespace equipoise
