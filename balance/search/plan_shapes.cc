#include "balance/search/plan_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "balance/costs/collective_time.h"
#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/modules.h"
#include "parallel/schedule/builders.h"

namespace equipoise {
namespace {

constexpr int kMostChunks = 4;

std::vector<int> Divisors(int number) {
  std::vector<int> divisors;
  for (int d = 1; d <= number; ++d) {
    if (number % d == 0) divisors.push_back(d);
  }
  return divisors;
}

// Groups that lie within a node, and have a head for each rank.
bool MayShareLayers(const PlanRequest& request, int tensor) {
  int64_t heads = request.model.text.num_attention_heads;
  if (request.model.has_vision) heads = std::min(heads, request.model.vision.num_attention_heads);
  return tensor <= heads && FitsNode(request.cluster, tensor);
}

bool Allows(const std::optional<int>& pin, int value) { return !pin || *pin == value; }

// Schedule and chunks for layers that so many pipeline ranks share.
struct Order {
  const ScheduleKind* schedule;
  int chunks;
};

std::vector<Order> Orders(const PlanRequest& request, int pipeline, int layers) {
  const PlanPins& pins = request.pins;
  const int wanted = std::max(kMostChunks, pins.chunks.value_or(1));
  std::vector<Order> orders;
  for (const ScheduleKind& kind : ScheduleKinds()) {
    if (pins.schedule ? *pins.schedule != kind.name : !kind.searched) continue;
    // One rank alone does the same in any of them.
    if (pipeline == 1 && (kind.chunked() || !orders.empty())) continue;
    const int most = std::min({kind.most_chunks, wanted, std::max(1, layers / pipeline)});
    for (int chunks = kind.fewest_chunks; chunks <= most; ++chunks) {
      if (Allows(pins.chunks, chunks)) orders.push_back({&kind, chunks});
    }
  }
  return orders;
}

std::string Pinned(const PlanPins& pins) {
  std::string text;
  const auto add = [&text](const char* name, const auto& pin) {
    if (!pin) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, *pin);
  };
  add("data", pins.data);
  add("pipeline", pins.pipeline);
  add("tensor", pins.tensor);
  add("chunks", pins.chunks);
  add("schedule", pins.schedule);
  if (pins.encoder_ranks > 0) add("encoder ranks", std::optional<int>(pins.encoder_ranks));
  return text.empty() ? "nothing pinned" : text;
}

}  // namespace

std::vector<Plan> PlanShapes(const PlanRequest& request) {
  const PlanPins& pins = request.pins;
  const int layers = static_cast<int>(LayerSpecs(request.model).size());
  // Ranks and layers that the encoder has for itself.
  const int own_ranks = pins.encoder_ranks;
  const int own_layers = own_ranks > 0 ? NumEncoderLayers(request.model) : 0;
  const int64_t batch = request.workload.global_batch();
  std::vector<Plan> shapes;
  for (const int tensor : Divisors(request.ranks)) {
    if (pins.tensor ? *pins.tensor != tensor : !MayShareLayers(request, tensor)) continue;
    for (const int pipeline : Divisors(request.ranks / tensor)) {
      const int data = request.ranks / tensor / pipeline;
      if (!Allows(pins.pipeline, pipeline) || !Allows(pins.data, data)) continue;
      const int shared_ranks = pipeline - own_ranks, shared_layers = layers - own_layers;
      if (batch % data != 0 || shared_ranks < 1 || shared_ranks > shared_layers) continue;
      for (const Order& order : Orders(request, shared_ranks, shared_layers)) {
        const Degrees degrees{data, pipeline, tensor};
        const Placement placement = order.schedule->placement;
        Plan plan = own_ranks == 0 ? InlinePlan(degrees, order.chunks, placement)
                                   : DisaggregatedPlan(degrees, own_ranks, own_layers, order.chunks,
                                                       placement);
        plan.schedule = order.schedule->name;
        plan.sharded = pins.sharded.value_or(ShardedState::kOptimizer);
        shapes.push_back(plan);
      }
    }
  }
  if (!pins.stage_begins.empty()) {
    std::erase_if(shapes, [&](const Plan& plan) {
      return plan.num_stages() + 1 != static_cast<int>(pins.stage_begins.size());
    });
  }
  if (shapes.empty()) {
    throw ConfigError(fmt::format(
        "parallel: no mesh of {} ranks deals train.global_batch {} to whole micro-batches and {} "
        "layers to stages ({}{}); pin less, or change the ranks or train.global_batch",
        request.ranks, batch, layers, Pinned(pins),
        pins.tensor ? "" : "; tensor ranks stay within a node, and have an attention head each"));
  }
  return shapes;
}

}  // namespace equipoise
