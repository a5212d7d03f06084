#include "parallel/plan.h"

#include <fmt/format.h>

#include <utility>

#include "configs/base/error.h"

namespace equipoise {

Mesh MeshOf(const Degrees& degrees) {
  return Mesh({{Axis::kData, degrees.data},
               {Axis::kPipeline, degrees.pipeline},
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
  PlanComponent encoder{.encoder = true,
                        .mesh = plan.mesh.Slice(Axis::kPipeline, 0, encoder_ranks)};
  PlanComponent& text = plan.components.back();
  text.first_layer = encoder_layers;
  text.mesh = plan.mesh.Slice(Axis::kPipeline, encoder_ranks, degrees.pipeline - encoder_ranks);
  plan.components.insert(plan.components.begin(), std::move(encoder));
  return plan;
}

int Plan::encoder_ranks() const {
  const PlanComponent& first = components.front();
  return first.encoder ? first.mesh.size(Axis::kPipeline) : 0;
}

int Plan::num_stages() const {
  int stages = 0;
  for (const PlanComponent& component : components) stages += component.num_stages();
  return stages;
}

Plan::StagePlace Plan::Find(int stage) const {
  for (const PlanComponent& component : components) {
    if (stage < component.num_stages()) return {&component, stage};
    stage -= component.num_stages();
  }
  EQUIPOISE_CHECK(false, "no stage ", stage, " behind the last");
  return {};
}

const PlanComponent& Plan::ComponentOfStage(int stage) const { return *Find(stage).component; }

int Plan::RankOfStage(int stage) const {
  const auto [component, place] = Find(stage);
  const Mesh& own = component->mesh;
  const int at = RankOfPlace(component->placement, place, own.size(Axis::kPipeline));
  return mesh.Coordinate(own.Rank({.pipeline = at}), Axis::kPipeline);
}

std::vector<int> Plan::StagesOf(int pipeline_rank) const {
  std::vector<int> stages;
  for (int stage = 0; stage < num_stages(); ++stage) {
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
  const std::string encoder =
      plan.encoder_ranks() == 0 ? "" : fmt::format(" ({} for the encoder)", plan.encoder_ranks());
  return fmt::format("data {} x pipeline {}{} x tensor {}", plan.data(), plan.pipeline(), encoder,
                     plan.tensor());
}

}  // namespace equipoise
