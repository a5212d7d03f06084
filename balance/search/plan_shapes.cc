#include "balance/search/plan_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "balance/costs/collective_time.h"
#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/modules.h"
#include "parallel/schedule/builders.h"

namespace equipoise {
namespace {

constexpr int kMostChunks = 4;
constexpr std::array<int, 3> kEncoderChunks = {1, 2, 4};  // of an encoder in the bubbles

std::vector<int> Divisors(int number) {
  std::vector<int> divisors;
  for (int d = 1; d <= number; ++d) {
    if (number % d == 0) divisors.push_back(d);
  }
  return divisors;
}

// Groups that lie within a node, and have a head of the language model for each rank.
bool MayShareLayers(const PlanRequest& request, int tensor) {
  const std::optional<int>& own = request.pins.encoder.tensor;
  if (own && tensor % *own != 0) return false;
  return tensor <= request.model.text.num_attention_heads && FitsNode(request.cluster, tensor);
}

bool Allows(const std::optional<int>& pin, int value) { return !pin || *pin == value; }

// Whether context ranks can share out tokens and pictures: with all layers that take what is made
// of pictures in one stage.
bool MaySharePictures(const PlanRequest& request, const Degrees& degrees) {
  const PlanPins& pins = request.pins;
  if (degrees.context == 1) return true;
  if (!request.model.has_vision || degrees.pipeline == 1) return true;
  return pins.stage_begins.size() > 1 && pins.stage_begins[1] >= LayersWithPictures(request.model);
}

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
  if (pins.context > 1) add("context", std::optional<int>(pins.context));
  if (pins.sequence.value_or(false)) add("sequence", pins.sequence);
  add("chunks", pins.chunks);
  add("schedule", pins.schedule);
  if (pins.encoder.placement && pins.encoder.placement != EncoderPlacement::kInline) {
    add("encoder", std::optional<std::string>(ToString(*pins.encoder.placement)));
  }
  add("ZeRO ranks", pins.zero_ranks);
  add("encoder ranks", pins.encoder.ranks);
  add("encoder chunks", pins.encoder.chunks);
  add("encoder tensor", pins.encoder.tensor);
  return text.empty() ? "nothing pinned" : text;
}

// Whether passes have state layer by layer: they are collective over data ranks, which do not agree
// on what lies in the bubbles.
bool RunsByLayer(const PlanPins& pins, const Degrees& degrees) {
  const bool shares = pins.sharded && *pins.sharded >= ShardedState::kGradients;
  return (shares && degrees.data > 1) || pins.offloaded >= ShardedState::kGradients;
}

// The plans of a mesh that has the encoder in one place, without schedule and stages; each with one
// language model's chunks and placement.
std::vector<Plan> PlansOf(EncoderPlacement encoder, const PlanRequest& request,
                          const Degrees& degrees) {
  const EncoderPins& pins = request.pins.encoder;
  const int all = static_cast<int>(LayerSpecs(request.model).size());
  const int own = encoder == EncoderPlacement::kInline
                      ? 0
                      : pins.layers.value_or(NumEncoderLayers(request.model));
  const bool apart = encoder == EncoderPlacement::kDisaggregated;
  const int own_ranks = apart ? pins.ranks.value_or(1) : 0;
  const int text_ranks = degrees.pipeline - own_ranks;
  if (text_ranks < 1 || text_ranks > all - own) return {};
  std::vector<Plan> plans;
  for (const Order& order : Orders(request, text_ranks, all - own)) {
    const Placement placement = order.schedule->placement;
    const auto add = [&](Plan plan) {
      plan.schedule = order.schedule->name;
      plan.sharded = request.pins.sharded.value_or(ShardedState::kOptimizer);
      plan.offloaded = request.pins.offloaded;
      const int shards = request.pins.zero_ranks.value_or(plan.same_weights());
      if (plan.same_weights() % shards != 0) return;
      plan.zero_ranks = shards == plan.same_weights() ? 0 : shards;
      plans.push_back(std::move(plan));
    };
    if (apart) {
      add(DisaggregatedPlan(degrees, own_ranks, own, order.chunks, placement));
    } else if (!FillsBubbles(encoder)) {
      add(InlinePlan(degrees, order.chunks, placement));
    } else if (!RunsByLayer(request.pins, degrees)) {
      for (const int tensor : Divisors(degrees.tensor)) {
        if (!Allows(pins.tensor, tensor) || !MayShareEncoder(request, encoder, tensor)) continue;
        for (const int ranks : Divisors(degrees.pipeline)) {
          for (const int chunks : kEncoderChunks) {
            const int stages = pins.chunks.value_or(chunks);
            const bool again = pins.chunks && chunks != kEncoderChunks[0];
            if (again || !Allows(pins.ranks, ranks) || ranks * stages > own) continue;
            add(PlanInBubbles(degrees, {encoder, ranks, stages, own, tensor}, order.chunks,
                              placement));
          }
        }
      }
    }
  }
  return plans;
}

// The places of the encoder that are considered. Those in the bubbles are simulated in one go, the
// shortest of all being taken: kOptimus stands for all of them.
std::vector<EncoderPlacement> Encoders(const PlanRequest& request) {
  if (request.pins.encoder.placement) return {*request.pins.encoder.placement};
  // It lies in bubbles, of which passes of the next step leave next to none.
  if (request.pins.schedule && DelaysUpdates(*request.pins.schedule))
    return {EncoderPlacement::kInline, EncoderPlacement::kDisaggregated};
  // Apart it could not run ahead.
  if (request.pins.encoder.prefetch) return {EncoderPlacement::kInline, EncoderPlacement::kOptimus};
  return {EncoderPlacement::kInline, EncoderPlacement::kDisaggregated, EncoderPlacement::kOptimus};
}

}  // namespace

bool MayShareEncoder(const PlanRequest& request, EncoderPlacement encoder, int tensor) {
  const bool own = FillsBubbles(encoder) && request.pins.encoder.tensor;
  return own || !request.model.has_vision || tensor <= request.model.vision.num_attention_heads;
}

std::vector<Plan> PlanShapes(const PlanRequest& request) {
  const PlanPins& pins = request.pins;
  const int64_t batch = request.workload.global_batch();
  std::vector<Plan> shapes;
  for (const int tensor : Divisors(request.ranks)) {
    if (pins.tensor ? *pins.tensor != tensor : !MayShareLayers(request, tensor)) continue;
    if (pins.sequence.value_or(false) && tensor == 1) continue;
    if (request.ranks / tensor % pins.context != 0) continue;
    const int others = request.ranks / tensor / pins.context;
    for (const int pipeline : Divisors(others)) {
      const int data = others / pipeline;
      const Degrees degrees = {data, pipeline, tensor, pins.context};
      if (!MaySharePictures(request, degrees)) continue;
      if (!Allows(pins.pipeline, pipeline) || !Allows(pins.data, data) || batch % data != 0) {
        continue;
      }
      for (const EncoderPlacement encoder : Encoders(request)) {
        // One rank waits for data ranks alone: a step ahead has that time.
        const bool searched = !pins.encoder.placement;
        const bool waits = pipeline > 1 || pins.encoder.prefetch;
        if (searched && !waits && encoder != EncoderPlacement::kInline) continue;
        if (pins.context > 1 && encoder != EncoderPlacement::kInline) continue;
        if ((searched || !pins.tensor) && !MayShareEncoder(request, encoder, tensor)) continue;
        for (Plan& plan : PlansOf(encoder, request, degrees)) {
          shapes.push_back(std::move(plan));
          shapes.back().sequence = pins.sequence.value_or(false);
        }
      }
    }
  }
  if (!pins.stage_begins.empty()) {
    std::erase_if(shapes, [&](const Plan& plan) {
      int stages = 0;   // of one copy of each component
      bool cut = true;  // where the components are
      for (const PlanComponent& component : plan.components) {
        const auto place = static_cast<size_t>(stages);
        cut = cut && place < pins.stage_begins.size() &&
              pins.stage_begins[place] == component.first_layer;
        stages += component.num_stages();
      }
      return !cut || stages + 1 != static_cast<int>(pins.stage_begins.size());
    });
  }
  if (shapes.empty()) {
    throw ConfigError(fmt::format(
        "parallel: no mesh of {} ranks deals train.global_batch {} to whole micro-batches and {} "
        "layers to stages ({}{}); pin less, or change the ranks or train.global_batch",
        request.ranks, batch, LayerSpecs(request.model).size(), Pinned(pins),
        pins.tensor ? "" : "; tensor ranks stay within a node, and have an attention head each"));
  }
  return shapes;
}

}  // namespace equipoise
