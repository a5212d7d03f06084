#include "balance/costs/stage_costs.h"

#include <catch2/catch.hpp>

#include "balance/costs/collective_time.h"
#include "balance/costs/memory_model.h"
#include "models/families/modules.h"
#include "models/families/presets.h"
#include "models/stages/plan_schedule.h"
#include "models/stages/stage_layout.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/passes.h"
#include "parallel/schedule/prefetch.h"
#include "tests/models/load_of.h"

namespace equipoise {
namespace {

struct Case {
  ModelConfig model = PresetConfig("internvl2-26b");
  Cluster cluster;
  Plan plan;
  std::vector<LayerLoad> loads;

  Case() {
    ClusterConfig config;
    config.preset = "a100-80g";
    config.nodes = 8;
    cluster = MakeCluster(config);
    plan = InlinePlan({.data = 8, .pipeline = 4, .tensor = 2});
    plan.stage_begins = {0, 29, 54, 74, 97};
    loads = {LoadOf(model, 9, 4096), LoadOf(model, 4, 3000), LoadOf(model, 0, 1000),
             LoadOf(model, 9, 3500)};
  }
  CostModel costs() const {
    CostModel::Options options;
    options.tensor = plan.tensor();
    return CostModel(model, cluster, options);
  }
  Schedule schedule(const SimulationCosts& simulation) const {
    const StageLayout stages(model, plan, {});
    return CompleteSchedule(
        BuildSchedule(plan.schedule, stages.graph(), static_cast<int>(loads.size())),
        stages.Work(loads), simulation);
  }
};

TEST_CASE("transfers of a step are in the order of the costs that are given", "[balance][cpu]") {
  Case c;
  const StageLayout stages(c.model, c.plan, {});
  const SimulationCosts simulation = StageCosts(c.costs(), c.plan, c.cluster, c.loads);
  const Schedule ops = PlanSchedule(c.plan).StepOps(stages, c.loads, simulation);
  CHECK(ops == c.schedule(simulation));
  // A last stage that takes most of the step is behind with every gradient that it sends.
  SimulationCosts slow_end = simulation;
  slow_end.seconds = [&](const Op& op) {
    return (op.stage + 1 == c.plan.num_stages() ? 100 : 1) * simulation.seconds(op);
  };
  CHECK(PlanSchedule(c.plan).StepOps(stages, c.loads, slow_end) != ops);
}

TEST_CASE("a stage's ops cost what its layers cost", "[balance][cpu]") {
  Case c;
  c.plan.recompute.assign(97, Recompute::kNone);
  c.plan.recompute[30] = Recompute::kFull;
  const CostModel costs = c.costs();
  const SimulationCosts simulation = StageCosts(costs, c.plan, c.cluster, c.loads);
  LayerTimes sum;
  double again = 0;
  for (int layer = 29; layer < 54; ++layer) {
    const LayerTimes times = costs.Times(layer, c.loads[1]);
    sum.forward_s += times.forward_s;
    sum.input_gradient_s += times.input_gradient_s;
    sum.weight_gradient_s += times.weight_gradient_s;
    if (layer == 30) again = times.forward_s;
  }
  // All ranks wait for the slowest.
  const double slowest = StragglerFactor(c.cluster, c.plan.num_ranks());
  const auto seconds = [&](OpKind kind) { return simulation.seconds({kind, 1, 1}) / slowest; };
  CHECK(seconds(OpKind::kForward) == Approx(sum.forward_s));
  CHECK(seconds(OpKind::kBackward) == Approx(sum.backward_s() + again));
  CHECK(seconds(OpKind::kInputGradient) == Approx(sum.input_gradient_s + again));
  CHECK(seconds(OpKind::kWeightGradient) == Approx(sum.weight_gradient_s));
  // Layer 53 is a decoder block: 3000 rows of 6144 in bf16, either way.
  CHECK(simulation.bytes({OpKind::kSend, 1, 1, 2}) == 3000.0 * 6144 * 2);
  CHECK(simulation.bytes({OpKind::kSend, 2, 1, 1}) == 3000.0 * 6144 * 2);
  CHECK(simulation.link(0, 1).bytes_per_s == 230e9);
  CHECK(simulation.link(0, 1).latency_s == c.cluster.intra.latency_s);  // no host waits
}

TEST_CASE("the forecast counts states once and activations in flight", "[balance][cpu]") {
  Case c;
  const CostModel costs = c.costs();
  const Schedule schedule = c.schedule(StageCosts(costs, c.plan, c.cluster, c.loads));
  const MemoryForecast first = ForecastMemory(costs, c.plan, schedule, c.loads, 0);
  const MemoryForecast last = ForecastMemory(costs, c.plan, schedule, c.loads, 3);
  int64_t parameters = 0;
  for (int layer = 0; layer < 29; ++layer) parameters += costs.Parameters(layer);
  CHECK(first.parameters == 2 * parameters);
  CHECK(first.gradients == 4 * parameters);
  CHECK(first.optimizer == 10 * parameters);  // two fp32 moments, a 16-bit remainder
  c.plan.sharded = ShardedState::kOptimizer;
  CHECK(ForecastMemory(costs, c.plan, schedule, c.loads, 0).optimizer == 10 * parameters / 8);
  // The first stage has all three micro-batches with tiles in flight, the last one at a time.
  const auto kept = [&](int begin, int end, int load) {
    const LayerLoad& at = c.loads[static_cast<size_t>(load)];
    const int64_t sent =
        costs.specs()[static_cast<size_t>(end) - 1].BoundaryBytes(at, /*element_bytes=*/2);
    int64_t sum = 0;
    for (int layer = begin; layer < end; ++layer) {
      sum += costs.KeptBytes(layer, at, Recompute::kNone);
    }
    // And what a stage hands on.
    return sum + (end < 97 ? sent : 0);
  };
  CHECK(first.activations == kept(0, 29, 0) + kept(0, 29, 1) + kept(0, 29, 3));
  CHECK(last.activations == kept(74, 97, 0));
  c.plan.recompute.assign(97, Recompute::kFull);
  CHECK(ForecastMemory(costs, c.plan, schedule, c.loads, 0).activations < first.activations / 5);
}

// PipeDream-2BW keeps as many activations as 1F1B, whether passes of other steps are in its list or
// not, a second version of the weights, and gradients of the next step where it makes some.
TEST_CASE("the forecast counts both versions of weights whose updates are delayed",
          "[balance][cpu]") {
  Case c;
  const CostModel costs = c.costs();
  const LayerLoad load = LoadOf(c.model, 9, 4096);
  c.loads.assign(8, load);
  const auto forecast = [&](const std::string& schedule, bool in_middle, int rank) {
    c.plan.schedule = schedule;
    const StageLayout stages(c.model, c.plan, {});
    StepLoads loads{c.loads};
    if (in_middle) loads.next = c.loads, loads.begun = true;
    const std::vector<LayerLoad> all = loads.All();
    const SimulationCosts simulation = StageCosts(costs, c.plan, c.cluster, all);
    const Schedule step = PlanSchedule(c.plan).StepOps(stages, loads, simulation);
    return ForecastMemory(costs, c.plan, step, all, rank);
  };
  for (int rank = 0; rank < 4; ++rank) {
    INFO("rank " << rank);
    const MemoryForecast flushed = forecast("1f1b", false, rank);
    const MemoryForecast alone = forecast("pipedream_2bw", false, rank);
    const MemoryForecast middle = forecast("pipedream_2bw", true, rank);
    CHECK(alone.parameters == 2 * flushed.parameters);
    // The first two stages run forwards ahead alone.
    CHECK(alone.gradients == (rank < 2 ? 1 : 2) * flushed.gradients);
    CHECK(alone.optimizer == flushed.optimizer);
    CHECK(alone.activations <= flushed.activations);
    CHECK(middle.activations == flushed.activations);
    CHECK(middle.gradients == alone.gradients);
  }
  // Of fewer micro-batches than ranks those of two steps are in flight: as of one step of both.
  c.loads.assign(2, load);
  const int64_t middle = forecast("pipedream_2bw", true, 0).activations;
  CHECK(middle > forecast("pipedream_2bw", false, 0).activations);
  c.loads.assign(4, load);
  CHECK(middle <= forecast("pipedream_2bw", false, 0).activations);
}

// A frozen encoder in two copies, one on each rank.
TEST_CASE("the forecast counts features that are made for the next step", "[balance][cpu]") {
  Case c;
  const std::vector<std::string> frozen = {"vision", "projector"};
  const int encoder = NumEncoderLayers(c.model);
  c.plan = PlanInBubbles({.pipeline = 2}, {EncoderPlacement::kOptimus, 1, 1, encoder});
  c.plan.stage_begins = {0, encoder, 70, 97};
  CostModel::Options options;
  options.frozen = frozen;
  const CostModel costs(c.model, c.cluster, options);
  const StageLayout stages(c.model, c.plan, frozen);
  const PlanSchedule schedule(c.plan);
  const auto step = [&](const StepLoads& loads) {
    return schedule.StepOps(stages, loads, StageCosts(costs, c.plan, c.cluster, loads.All()));
  };
  const auto activations = [&](const StepLoads& loads, int rank) {
    return ForecastMemory(costs, c.plan, step(loads), loads.All(), rank).activations;
  };
  const StepLoads first{c.loads, {}, c.loads};
  const std::vector<int> owners = NextOwners(step(first), stages.Encoder({}), 4);
  CHECK(owners[2] == -1);  // text alone
  const StepLoads last{c.loads, owners}, middle{c.loads, owners, c.loads};
  const std::vector<int> next = NextOwners(step(middle), stages.Encoder({}), 4);
  int64_t all = 0;
  for (int rank = 0; rank < 2; ++rank) {
    int64_t taken = 0, left = 0;
    for (size_t i = 0; i < c.loads.size(); ++i) {
      const int64_t bytes = costs.BoundaryBytes(encoder - 1, c.loads[i]);
      taken += owners[i] == rank ? bytes : 0;
      left += next[i] == rank ? bytes : 0;
    }
    all += taken + left;
    const int64_t more = activations(middle, rank) - activations(last, rank);
    CHECK(more >= std::max(taken, left));
    CHECK(more <= taken + left);
  }
  CHECK(all > 0);
}

// Whole copies of the encoder on each of two tensor ranks, beside copies that these two share.
TEST_CASE("copies with tensor ranks of their own cost what their layers cost", "[balance][cpu]") {
  Case c;
  const int encoder = NumEncoderLayers(c.model);
  const auto plan_of = [&](int tensor) {
    Plan plan = PlanInBubbles({.pipeline = 2, .tensor = 2},
                              {EncoderPlacement::kThreePhase, 1, 1, encoder, tensor});
    plan.stage_begins = {0, encoder, 70, 97};
    return plan;
  };
  const auto costs_of = [&](const Plan& plan) {
    return CostModel(c.model, c.cluster, CostModel::OptionsOf(plan, {}));
  };
  const Plan lanes = plan_of(1), shared = plan_of(2);
  const CostModel own = costs_of(lanes), both = costs_of(shared);
  const CostModel alone(c.model, c.cluster, {});
  CHECK(own.Fits(lanes));
  CHECK_FALSE(own.Fits(shared));
  CHECK(both.Fits(shared));
  for (const int layer : {0, 20, encoder - 1}) {
    CHECK(own.Times(layer, c.loads[0]).forward_s == alone.Times(layer, c.loads[0]).forward_s);
    CHECK(own.Parameters(layer) == alone.Parameters(layer));
    CHECK(own.KeptBytes(layer, c.loads[0], Recompute::kNone) ==
          alone.KeptBytes(layer, c.loads[0], Recompute::kNone));
    CHECK(own.WorkBytes(layer, c.loads[0]) == alone.WorkBytes(layer, c.loads[0]));
  }
  for (int layer = encoder; layer < 97; ++layer) {
    CHECK(own.Times(layer, c.loads[0]).forward_s == both.Times(layer, c.loads[0]).forward_s);
    CHECK(own.Parameters(layer) == both.Parameters(layer));
  }
  const SimulationCosts of_lanes = StageCosts(own, lanes, c.cluster, c.loads);
  const SimulationCosts of_shared = StageCosts(both, shared, c.cluster, c.loads);
  const Op first{OpKind::kForward, 4, 0}, behind{OpKind::kForward, 5, 0};
  // The first stage of the language model waits for the features that one lane gives to all.
  CHECK(of_lanes.seconds(first) > of_shared.seconds({OpKind::kForward, 2, 0}));
  CHECK(of_lanes.seconds({OpKind::kForward, 4, 2}) == of_shared.seconds({OpKind::kForward, 2, 2}));
  CHECK(of_lanes.seconds(behind) == of_shared.seconds({OpKind::kForward, 3, 0}));
  CHECK(SumCopiesSeconds(own, lanes, c.cluster, 0) > SumCopiesSeconds(both, shared, c.cluster, 0));

  // A rank holds one whole copy, not those of all lanes.
  const auto forecast = [&](const CostModel& costs, const Plan& plan) {
    const StageLayout stages(c.model, plan, {});
    const SimulationCosts simulation = StageCosts(costs, plan, c.cluster, c.loads);
    return ForecastMemory(costs, plan, PlanSchedule(plan).StepOps(stages, c.loads, simulation),
                          c.loads, 0);
  };
  int64_t more = 0;
  for (int layer = 0; layer < encoder; ++layer)
    more += alone.Parameters(layer) - both.Parameters(layer);
  const MemoryForecast of_own = forecast(own, lanes), of_both = forecast(both, shared);
  CHECK(of_own.parameters - of_both.parameters == 2 * more);
  CHECK(of_own.gradients - of_both.gradients == 4 * more);
  // Three micro-batches with pictures over four copies: one each. Shared, rank 0 has two of them.
  CHECK(of_own.activations > 0);
  Plan sharded = lanes;
  sharded.sharded = ShardedState::kOptimizer;
  int64_t text = 0, copied = 0;
  for (int layer = 0; layer < 70; ++layer)
    (layer < encoder ? copied : text) += own.Parameters(layer);
  CHECK(forecast(own, sharded).optimizer == 10 * text + 10 * copied / 4);
}

TEST_CASE("an offloaded optimizer's state is the host's, and so is its step", "[balance][cpu]") {
  Case c;
  c.plan.sharded = ShardedState::kOptimizer;
  const CostModel whole = c.costs();
  const Schedule schedule = c.schedule(StageCosts(whole, c.plan, c.cluster, c.loads));
  const CostModel& costs = whole;
  const MemoryForecast before = ForecastMemory(whole, c.plan, schedule, c.loads, 0);
  c.plan.offloaded = ShardedState::kOptimizer;
  int64_t parameters = 0;
  for (int layer = 0; layer < 29; ++layer) parameters += costs.Parameters(layer);
  std::vector<MemoryForecast> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(ForecastMemory(costs, c.plan, schedule, c.loads, rank));
  }
  CHECK(before.host == 0);
  CHECK(ranks[0].optimizer == 0);
  CHECK(ranks[0].total() == before.total() - before.optimizer);
  // Moments, remainders, and the weights a second time; gradients that arrive.
  const int64_t arriving = int64_t{32} << 20;
  CHECK(ranks[0].host == 12 * parameters / 8 + arriving);
  // A node has all four pipeline ranks, of two tensor ranks each.
  int64_t node = 0;
  for (const MemoryForecast& each : ranks) node += 2 * each.host;
  CHECK(HostBytesOfNode(c.cluster, c.plan, ranks) == node);
  // All eight of a node at once: 28 bytes by the processors and 6 by copies, of which one piece has
  // nothing to run beside; the norm of the gradients on the device; the weights are gathered.
  Plan alone = c.plan;
  alone.sharded = ShardedState::kNone;
  const auto all = static_cast<double>(parameters);
  const double update_s = 34 * all / (0.8 * 409e9 / 8), piece_s = 6 * 4194304 / 12e9;
  CHECK(OptimizerSeconds(costs, alone, c.cluster, 0) ==
        Approx(update_s + piece_s + 4 * all / (0.8 * 2039e9)));
  CHECK(OptimizerSeconds(costs, c.plan, c.cluster, 0) > update_s / 8);
  CHECK(OptimizerSeconds(costs, c.plan, c.cluster, 0) < update_s / 4);
  // With a slow link the copies set the pace.
  c.cluster.host.link_bytes_per_s = 1e9;
  CHECK(OptimizerSeconds(costs, alone, c.cluster, 0) > 6 * all / 1e9);
  // A CPU's memory is the host's.
  Cluster cpus = c.cluster;
  cpus.multiprocessors = 0;
  const CostModel on_cpus(c.model, cpus, whole.options());
  CHECK(ForecastMemory(on_cpus, c.plan, schedule, c.loads, 0).host == 0);
}

TEST_CASE("ZeRO 2 and 3 share out gradients and weights, and pay in every micro-batch",
          "[balance][cpu]") {
  Case c;
  const CostModel costs = c.costs();
  const SimulationCosts copies = StageCosts(costs, c.plan, c.cluster, c.loads);
  const Schedule schedule = c.schedule(copies);
  const MemoryForecast whole = ForecastMemory(costs, c.plan, schedule, c.loads, 0);
  c.plan.sharded = ShardedState::kGradients;
  const MemoryForecast two = ForecastMemory(costs, c.plan, schedule, c.loads, 0);
  CHECK(two.gradients == whole.gradients / 8);
  CHECK(two.parameters == whole.parameters);
  const SimulationCosts summed = StageCosts(costs, c.plan, c.cluster, c.loads);
  CHECK(summed.seconds({OpKind::kForward, 1, 1}) == copies.seconds({OpKind::kForward, 1, 1}));
  CHECK(summed.seconds({OpKind::kBackward, 1, 1}) > copies.seconds({OpKind::kBackward, 1, 1}));
  CHECK(summed.seconds({OpKind::kReduce, 1}) < copies.seconds({OpKind::kReduce, 1}));
  c.plan.sharded = ShardedState::kParameters;
  const MemoryForecast three = ForecastMemory(costs, c.plan, schedule, c.loads, 0);
  CHECK(three.parameters == whole.parameters / 8);
  // The layer that runs and the next are gathered.
  CHECK(three.temporary > two.temporary);
  const SimulationCosts gathered = StageCosts(costs, c.plan, c.cluster, c.loads);
  CHECK(gathered.seconds({OpKind::kForward, 1, 1}) > copies.seconds({OpKind::kForward, 1, 1}));
  CHECK(gathered.seconds({OpKind::kBackward, 1, 1}) > summed.seconds({OpKind::kBackward, 1, 1}));
}

TEST_CASE("a tied weight is gathered and summed with the head", "[balance][cpu]") {
  Case c;
  c.model = PresetConfig("internvl2-1b");
  const auto layers = static_cast<int>(LayerSpecs(c.model).size());
  c.plan = InlinePlan({.data = 8, .pipeline = 2});
  c.plan.stage_begins = {0, layers - 8, layers};  // the embedding is in the first stage
  struct Costs {
    double forward_s, backward_s, optimizer_s;
    int64_t gathered;
  };
  const auto priced = [&c](bool tied, ShardedState sharded) {
    c.model.text.tie_word_embeddings = tied;
    c.plan.sharded = sharded;
    const CostModel costs = c.costs();
    const SimulationCosts all = StageCosts(costs, c.plan, c.cluster, c.loads);
    return Costs{all.seconds({OpKind::kForward, 1, 1}), all.seconds({OpKind::kBackward, 1, 1}),
                 all.seconds({OpKind::kOptimizer}),
                 ForecastMemory(costs, c.plan, c.schedule(all), c.loads, 1).temporary};
  };
  const Costs own = priced(false, ShardedState::kParameters),
              tied = priced(true, ShardedState::kParameters);
  CHECK(tied.forward_s == Approx(own.forward_s));
  CHECK(tied.backward_s == Approx(own.backward_s));
  CHECK(tied.gathered == own.gathered);
  CHECK(tied.optimizer_s > own.optimizer_s);  // both stages add their gradients
  // The head has no other backward than the second gather and the sum.
  const Costs whole = priced(true, ShardedState::kOptimizer);
  CHECK(tied.backward_s - whole.backward_s > 0.9 * (tied.forward_s - whole.forward_s));
}

TEST_CASE("packed weights are not gathered by ZeRO 3", "[balance][cpu]") {
  const auto gathered_s = [](Packing packing) {
    Case c;
    c.model.lora.targets = {"all-linear"};
    c.model.quantize = {packing, {"llm"}};
    const auto forward_s = [&c] {
      return StageCosts(c.costs(), c.plan, c.cluster, c.loads).seconds({OpKind::kForward, 2, 1});
    };
    const double alone_s = forward_s();
    c.plan.sharded = ShardedState::kParameters;
    return forward_s() - alone_s;
  };
  CHECK(gathered_s(Packing::kNone) > 0);
  CHECK(gathered_s(Packing::kNf4) < gathered_s(Packing::kNone) / 4);
}

TEST_CASE("gradients and parameters in host memory leave the device, and take the host's link",
          "[balance][cpu]") {
  Case c;
  const CostModel costs = c.costs();
  c.plan.sharded = ShardedState::kParameters;
  c.plan.offloaded = ShardedState::kOptimizer;
  const SimulationCosts shared = StageCosts(costs, c.plan, c.cluster, c.loads);
  const Schedule schedule = c.schedule(shared);
  const auto forecast = [&] { return ForecastMemory(costs, c.plan, schedule, c.loads, 0); };
  const MemoryForecast optimizer = forecast();
  c.plan.offloaded = ShardedState::kGradients;
  const MemoryForecast gradients = forecast();
  CHECK(gradients.gradients == 0);
  CHECK(gradients.parameters == optimizer.parameters);
  // In pinned memory, of which LibTorch takes powers of two; none of it is on its way any more.
  const auto pinned = [](int64_t bytes) {
    int64_t taken = 1;
    while (taken < bytes) taken *= 2;
    return taken;
  };
  const int64_t arriving = int64_t{32} << 20;
  CHECK(gradients.host == optimizer.host - arriving + pinned(optimizer.gradients));
  c.plan.offloaded = ShardedState::kParameters;
  const MemoryForecast parameters = forecast();
  CHECK(parameters.parameters == 0);
  // The optimizer steps on the values themselves.
  const int64_t own = optimizer.gradients / 4;
  CHECK(parameters.host == gradients.host - 2 * own + pinned(optimizer.parameters));
  CHECK(parameters.temporary > optimizer.temporary);
  const auto seconds = [&](OpKind kind) {
    return StageCosts(costs, c.plan, c.cluster, c.loads).seconds({kind, 1, 2});
  };
  c.cluster.host.link_bytes_per_s = 1e9;
  const double forward_s = seconds(OpKind::kForward), backward_s = seconds(OpKind::kBackward);
  CHECK(forward_s > shared.seconds({OpKind::kForward, 1, 2}));
  c.plan.offloaded = ShardedState::kGradients;
  CHECK(seconds(OpKind::kForward) == shared.seconds({OpKind::kForward, 1, 2}));
  CHECK(seconds(OpKind::kBackward) > shared.seconds({OpKind::kBackward, 1, 2}));
  CHECK(seconds(OpKind::kBackward) < backward_s);
}

TEST_CASE("with copies in each node, passes share out state over its links alone",
          "[balance][cpu]") {
  Case c;
  c.cluster.devices_per_node = 32;  // the 8 data ranks lie 8 apart: 4 in each of 2 nodes
  c.plan.sharded = ShardedState::kOptimizer;
  const CostModel costs = c.costs();
  const Schedule schedule = c.schedule(StageCosts(costs, c.plan, c.cluster, c.loads));
  const MemoryForecast one = ForecastMemory(costs, c.plan, schedule, c.loads, 0);
  Plan within = c.plan;
  within.zero_ranks = 4;
  const MemoryForecast two = ForecastMemory(costs, within, schedule, c.loads, 0);
  CHECK(static_cast<double>(two.optimizer) == Approx(2.0 * static_cast<double>(one.optimizer)));
  CHECK(two.gradients == one.gradients);
  within.sharded = c.plan.sharded = ShardedState::kParameters;
  const auto pass_s = [&](const Plan& plan, OpKind kind) {
    return StageCosts(costs, plan, c.cluster, c.loads).seconds({kind, 1, 2});
  };
  CHECK(pass_s(within, OpKind::kForward) < pass_s(c.plan, OpKind::kForward));
  CHECK(pass_s(within, OpKind::kBackward) < pass_s(c.plan, OpKind::kBackward));
  CHECK(ForecastMemory(costs, within, schedule, c.loads, 0).parameters ==
        Approx(2 * ForecastMemory(costs, c.plan, schedule, c.loads, 0).parameters));
}

TEST_CASE("what the second half of a backward needs is kept until then", "[balance][cpu]") {
  Case c;
  const CostModel costs = c.costs();
  const auto activations = [&](const char* schedule, int rank) {
    c.plan.schedule = schedule;
    const SimulationCosts simulation = StageCosts(costs, c.plan, c.cluster, c.loads);
    return ForecastMemory(costs, c.plan, c.schedule(simulation), c.loads, rank).activations;
  };
  // The last rank leaves the weight gradients of three micro-batches when 1f1b has none in flight.
  CHECK(activations("zb_h1", 3) > 2 * activations("1f1b", 3));
  CHECK(activations("zb_h1", 0) < 1.3 * activations("1f1b", 0));
  // What is computed again for the first half waits for the second.
  const int64_t kept = activations("zb_h1", 3);
  c.plan.recompute.assign(97, Recompute::kFull);
  CHECK(activations("zb_h1", 3) > 0.5 * kept);
  CHECK(activations("1f1b", 3) < 0.5 * kept);
}

}  // namespace
}  // namespace equipoise
