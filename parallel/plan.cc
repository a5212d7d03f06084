#include "parallel/plan.h"

#include <fmt/format.h>

#include <utility>

#include "configs/base/error.h"

namespace equipoise {

Mesh MeshOf(const Degrees& degrees) {
  return Mesh({{Axis::kData, degrees.data},
               {Axis::kPipeline, degrees.pipeline},
               {Axis::kContext, degrees.context},
               {Axis::kTensor, degrees.tensor}});
}

Plan InlinePlan(const Degrees& degrees, int chunks, Placement placement) {
  Plan plan;
  plan.mesh = MeshOf(degrees);
  plan.components = {{.mesh = plan.mesh, .chunks = chunks, .placement = placement}};
  return plan;
}

Plan DisaggregatedPlan(const Degrees& degrees, int encoder_ranks, int encoder_layers, int chunks,
                       Placement placement) {
  Plan plan = InlinePlan(degrees, chunks, placement);
  plan.encoder = EncoderPlacement::kDisaggregated;
  PlanComponent encoder{.encoder = true,
                        .mesh = plan.mesh.Slice(Axis::kPipeline, 0, encoder_ranks)};
  PlanComponent& text = plan.components.back();
  text.first_layer = encoder_layers;
  text.mesh = plan.mesh.Slice(Axis::kPipeline, encoder_ranks, degrees.pipeline - encoder_ranks);
  plan.components.insert(plan.components.begin(), std::move(encoder));
  return plan;
}

Plan PlanInBubbles(const Degrees& degrees, const BubbleEncoder& encoder, int chunks,
                   Placement placement) {
  EQUIPOISE_CHECK(FillsBubbles(encoder.placement) && degrees.pipeline % encoder.ranks == 0,
                  encoder.ranks, " ranks of an encoder");
  EQUIPOISE_CHECK(degrees.context == 1, "context ranks and an encoder in the bubbles");
  const int tensor = encoder.tensor > 0 ? encoder.tensor : degrees.tensor;
  EQUIPOISE_CHECK(degrees.tensor % tensor == 0, tensor, " tensor ranks of an encoder");
  Plan plan = InlinePlan(degrees, chunks, placement);
  plan.encoder = encoder.placement;
  plan.components.back().first_layer = encoder.layers;
  // The same ranks: a copy's are neighbours along the pipeline, and along the tensor ranks.
  const Degrees own{.data = degrees.data * (degrees.pipeline / encoder.ranks),
                    .pipeline = encoder.ranks,
                    .tensor = degrees.tensor};
  const int lanes = degrees.tensor / tensor;
  const Mesh all = MeshOf(own);
  plan.components.insert(plan.components.begin(),
                         {.encoder = true,
                          .mesh = lanes == 1 ? all : all.Slice(Axis::kTensor, 0, tensor),
                          .lanes = lanes,
                          .chunks = encoder.chunks,
                          .placement = Placement::kBlocks});
  return plan;
}

int Plan::encoder_ranks() const {
  const PlanComponent& first = components.front();
  return first.encoder ? first.mesh.size(Axis::kPipeline) : 0;
}

int Plan::encoder_chunks() const {
  const PlanComponent& first = components.front();
  return first.encoder ? first.chunks : 0;
}

int Plan::encoder_tensor() const {
  const PlanComponent& first = components.front();
  return first.encoder ? first.mesh.size(Axis::kTensor) : 0;
}

int Plan::num_stages() const {
  int stages = 0;
  for (const PlanComponent& component : components) {
    stages += CopiesOf(component) * component.num_stages();
  }
  return stages;
}

Plan::StagePlace Plan::Find(int stage) const {
  int first = 0;
  for (const PlanComponent& component : components) {
    const int copy = stage / component.num_stages();
    if (copy < CopiesOf(component)) {
      return {&component, copy, stage % component.num_stages(), first};
    }
    stage -= CopiesOf(component) * component.num_stages();
    first += component.num_stages();
  }
  EQUIPOISE_CHECK(false, "no stage ", stage, " behind the last");
  return {};
}

const PlanComponent& Plan::ComponentOfStage(int stage) const { return *Find(stage).component; }

LayerSpan Plan::LayersOf(int stage) const {
  const StagePlace at = Find(stage);
  const auto s = static_cast<size_t>(at.first + at.stage);
  return {stage_begins[s], stage_begins[s + 1]};
}

int Plan::NextStage(int stage) const {
  if (stage + 1 == num_stages()) return -1;
  const StagePlace at = Find(stage);
  if (at.stage + 1 < at.component->num_stages()) return stage + 1;
  return stage + 1 + (CopiesOf(*at.component) - 1 - at.copy) * at.component->num_stages();
}

int Plan::RankOfStage(int stage) const {
  const StagePlace at = Find(stage);
  const Mesh& own = at.component->mesh;
  const int rank = RankOfPlace(at.component->placement, at.stage, own.size(Axis::kPipeline),
                               at.component->chunks);
  const int beside = at.copy / at.component->lanes;  // lanes are on the same ranks of the pipeline
  return mesh.Coordinate(own.Rank({.data = beside, .pipeline = rank}), Axis::kPipeline);
}

int Plan::LaneOf(int stage) const {
  const StagePlace at = Find(stage);
  return at.component->lanes > 1 ? at.copy % at.component->lanes : -1;
}

std::vector<int> Plan::StagesOf(int pipeline_rank, int lane) const {
  std::vector<int> stages;
  for (int stage = 0; stage < num_stages(); ++stage) {
    if (LaneOf(stage) >= 0 && LaneOf(stage) != lane) continue;
    if (RankOfStage(stage) == pipeline_rank) stages.push_back(stage);
  }
  return stages;
}

std::vector<int> Plan::stage_layers() const {
  std::vector<int> layers;
  for (size_t s = 0; s + 1 < stage_begins.size(); ++s) {
    layers.push_back(stage_begins[s + 1] - stage_begins[s]);
  }
  return layers;
}

std::string DescribeAxes(const Plan& plan) {
  std::string own, copies;
  if (plan.encoder == EncoderPlacement::kDisaggregated) {
    own = fmt::format(" ({} for the encoder)", plan.encoder_ranks());
  } else if (FillsBubbles(plan.encoder)) {
    copies = fmt::format(", encoder {} on {} x {} ranks", ToString(plan.encoder),
                         plan.encoder_copies(), plan.encoder_ranks());
    if (plan.encoder_lanes() > 1) copies += fmt::format(" x tensor {}", plan.encoder_tensor());
  }
  const std::string context =
      plan.context() > 1 ? fmt::format(" x context {}", plan.context()) : "";
  return fmt::format("data {} x pipeline {}{}{} x tensor {}{}", plan.data(), plan.pipeline(), own,
                     context, plan.tensor(), copies);
}

}  // namespace equipoise
