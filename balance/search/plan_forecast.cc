#include "balance/search/plan_forecast.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "balance/costs/collective_time.h"
#include "balance/costs/layer_cost_table.h"
#include "balance/costs/stage_costs.h"
#include "balance/search/planned_step.h"
#include "parallel/schedule/prefetch.h"
#include "parallel/schedule/simulate.h"

// The step is simulated several times: as it is, with compute only, with each stage's mean over the
// micro-batches, and with the mean over stages as well; the shares of the bubble are the
// differences. For the share of communication it is simulated with links that take no time.
// Compute only leaves out what passes wait for of state that is not whole where they run
// (PassesAlone()): no stage has to fill or drain for it.

namespace equipoise {
namespace {

// One step of the workload under the plan.
class StepForecaster {
 public:
  StepForecaster(const PlanRequest& request, const CostModel& costs, const Plan& plan, size_t step)
      : request_(request), plan_(plan), table_(costs, request.workload.steps[step]) {
    const std::vector<int> dealt = DealtPacks(request.workload, step, plan.data());
    std::vector<double> work(static_cast<size_t>(plan.data()), 0.0);
    for (size_t i = 0; i < dealt.size(); ++i) work[i % work.size()] += PackSeconds(dealt[i]);
    const auto most = std::max_element(work.begin(), work.end());
    mean_work_s_ = std::accumulate(work.begin(), work.end(), 0.0) / plan.data();
    slowest_work_s_ = *most;
    packs_ = PacksOfRank(dealt, plan.data(), static_cast<int>(most - work.begin()));
    step_.emplace(StageLayout(request.model, plan, request.frozen), table_, request.cluster, packs_,
                  request.RunsAhead(plan));
    step_s_ = step_->seconds();
  }

  double step_s() const { return step_s_; }

  double SecondsWithoutLinks(const CostModel& free) const {
    const Cluster cluster = WithoutLinks(request_.cluster);
    std::vector<LayerLoad> loads;
    for (const int pack : step_->packs) loads.push_back(table_.load(pack));
    const SimulationCosts costs = StageCosts(free, plan_, cluster, loads);
    return SimulateTimes(step_->schedule, WithTaken(costs, step_->taken)).step_s;
  }

  BubbleShares Bubbles() const {
    const SimulationCosts passes = PassesAlone();
    const double alone_s = Simulated(passes.seconds);
    const MeanSeconds means = StageMeans(passes);
    const double even_loads_s = Simulated([&](const Op& op) { return means.Of(op); });
    const double even_s = Simulated([&](const Op& op) { return means.OfAnyStage(op); });
    const double optimizer_s = passes.seconds({OpKind::kOptimizer});
    const double work_s = StragglerFactor(request_.cluster, plan_.num_ranks()) * slowest_work_s_;
    const double ideal_s = work_s / plan_.pipeline() + optimizer_s;
    BubbleShares shares;
    shares.fill_and_drain = (even_s - ideal_s) / step_s_;
    shares.uneven_stages = (even_loads_s - even_s) / step_s_;
    shares.uneven_micro_batches = (alone_s - even_loads_s) / step_s_;
    shares.communication = (step_s_ - alone_s) / step_s_;
    shares.uneven_data_ranks = (slowest_work_s_ - mean_work_s_) / plan_.pipeline() / step_s_;
    return shares;
  }

  std::vector<StageForecast> Stages() const {
    std::vector<StageForecast> stages;
    const auto count = static_cast<double>(packs_.size());
    for (int stage = 0; stage < plan_.num_stages(); ++stage) {
      StageForecast each;
      each.pipeline_rank = plan_.RankOfStage(stage);
      each.first_layer = plan_.LayersOf(stage).begin;
      each.end_layer = plan_.LayersOf(stage).end;
      for (size_t m = 0; m < packs_.size(); ++m) {
        const int micro_batch = static_cast<int>(m);
        each.forward_s += step_->costs.seconds({OpKind::kForward, stage, micro_batch}) / count;
        each.backward_s += step_->costs.seconds({OpKind::kBackward, stage, micro_batch}) / count;
        for (int layer = each.first_layer; layer < each.end_layer; ++layer) {
          each.recompute_s += RecomputeSeconds(layer, packs_[m]) / count;
        }
      }
      stages.push_back(each);
    }
    return stages;
  }

 private:
  // Seconds of the passes over the mean micro-batch.
  struct PassSeconds {
    double forward = 0, input_gradient = 0, weight_gradient = 0;
    double Of(OpKind kind) const {
      if (IsForward(kind)) return forward;
      return (MakesInputGradient(kind) ? input_gradient : 0) +
             (MakesWeightGradient(kind) ? weight_gradient : 0);
    }
    void Add(const PassSeconds& other) {
      forward += other.forward;
      input_gradient += other.input_gradient;
      weight_gradient += other.weight_gradient;
    }
  };
  struct MeanSeconds {
    std::vector<PassSeconds> stages;
    std::vector<double> share;     // [stage] of its part's work, if ranks were equal
    std::vector<bool> of_encoder;  // [stage]
    // Sums over the stages that a micro-batch passes: of an encoder in the bubbles, whose copies
    // are on all ranks, and of all others.
    PassSeconds encoder, all;
    double optimizer = 0;
    double Of(const Op& op) const {
      if (!IsCompute(op.kind)) return op.kind == OpKind::kOptimizer ? optimizer : 0;
      return stages[static_cast<size_t>(op.stage)].Of(op.kind);
    }
    double OfAnyStage(const Op& op) const {
      if (!IsCompute(op.kind)) return Of(op);
      const auto stage = static_cast<size_t>(op.stage);
      return (of_encoder[stage] ? encoder : all).Of(op.kind) * share[stage];
    }
  };

  double RecomputeSeconds(int layer, int pack) const {
    if (plan_.recompute.empty()) return 0;
    const auto kind = static_cast<size_t>(plan_.recompute[static_cast<size_t>(layer)]);
    return table_.At(layer, pack).recompute_s[kind];
  }

  // Seconds of a pack in all layers, forward and backward.
  double PackSeconds(int pack) const {
    double seconds = 0;
    for (int layer = 0; layer < table_.model().num_layers(); ++layer) {
      const LayerTimes& times = table_.At(layer, pack).times;
      seconds += table_.model().ShareOfRank(layer) *
                 (times.forward_s + times.backward_s() + RecomputeSeconds(layer, pack));
    }
    return seconds;
  }

  // The step's costs without the collectives of ZeRO 2 and 3 and the copies of state in host
  // memory that no pass hides, and without the sums that end a step (SumCopiesSeconds()).
  SimulationCosts PassesAlone() const {
    Plan whole = plan_;
    whole.sharded = std::min(plan_.sharded, ShardedState::kOptimizer);
    whole.offloaded = std::min(plan_.offloaded, ShardedState::kOptimizer);
    SimulationCosts costs = StageCosts(table_, whole, request_.cluster, step_->packs);
    double update_s = 0;
    for (int rank = 0; rank < plan_.pipeline(); ++rank) {
      update_s =
          std::max(update_s, OptimizerSeconds(table_.model(), plan_, request_.cluster, rank));
    }
    costs.seconds = [passes = costs.seconds, update_s](const Op& op) {
      return op.kind == OpKind::kOptimizer ? update_s : passes(op);
    };
    return WithTaken(costs, step_->taken);
  }

  MeanSeconds StageMeans(const SimulationCosts& passes) const {
    MeanSeconds means;
    means.optimizer = passes.seconds({OpKind::kOptimizer});
    for (int stage = 0; stage < plan_.num_stages(); ++stage) {
      const auto mean = [&](OpKind kind) {
        double sum = 0;
        for (int m = 0; m < static_cast<int>(packs_.size()); ++m) {
          sum += passes.seconds({kind, stage, m});
        }
        return sum / static_cast<double>(packs_.size());
      };
      const PassSeconds pass = {mean(OpKind::kForward), mean(OpKind::kInputGradient),
                                mean(OpKind::kWeightGradient)};
      means.stages.push_back(pass);
      // A micro-batch passes one copy of the encoder.
      const bool bubbles = FillsBubbles(plan_.encoder);
      const PlanComponent& component = plan_.ComponentOfStage(stage);
      PassSeconds& all = bubbles && component.encoder ? means.encoder : means.all;
      if (plan_.CopyOf(stage) == 0) all.Add(pass);
      const auto chunks = plan_.StagesOf(plan_.RankOfStage(stage)).size();
      const double stages =
          bubbles ? component.num_stages() : plan_.pipeline() * static_cast<double>(chunks);
      means.share.push_back(1 / stages);
      means.of_encoder.push_back(bubbles && component.encoder);
    }
    return means;
  }

  // The step with these seconds; transfers and reductions take no time.
  double Simulated(const std::function<double(const Op&)>& seconds) const {
    SimulationCosts costs;
    costs.seconds = [&seconds](const Op& op) {
      return op.kind == OpKind::kReduce ? 0 : seconds(op);
    };
    return SimulateTimes(step_->schedule, WithTaken(costs, step_->taken)).step_s;
  }

  const PlanRequest& request_;
  const Plan& plan_;
  LayerCostTable table_;
  std::vector<int> packs_;                       // of the data rank with the most work
  double mean_work_s_ = 0, slowest_work_s_ = 0;  // of a data rank
  std::optional<PlannedStep> step_;
  double step_s_ = 0;
};

StepPercentiles Percentiles(std::vector<double> steps, double error_band) {
  std::sort(steps.begin(), steps.end());
  const auto count = static_cast<double>(steps.size());
  const double mean = std::accumulate(steps.begin(), steps.end(), 0.0) / count;
  double variance = 0;
  for (const double each : steps) variance += (each - mean) * (each - mean) / count;
  const double median = (steps[(steps.size() - 1) / 2] + steps[steps.size() / 2]) / 2;
  const double off =
      kTenthPercentile * std::sqrt(variance + error_band * error_band * median * median);
  return {median - off, median, median + off};
}

// Each product once in forward, once for its input's gradient, and once for its weight's where that
// is trained; attention, which has no weights, twice in backward.
double HalfFlops(const HalfCost& half, const LayerLoad& load, bool has_backward, bool trained) {
  const double attention = half.AttentionFlops(load);
  double flops = has_backward ? 3 * attention : attention;
  for (const Product& product : half.products) {
    const int passes = 1 + (has_backward ? 1 : 0) + (trained && !product.frozen ? 1 : 0);
    flops += passes * 2.0 * product.rows.At(load) * static_cast<double>(product.n * product.k);
  }
  return flops;
}

}  // namespace

double ModelFlops(const CostModel& costs, const LayerLoad& load) {
  double flops = 0;
  for (int layer = 0; layer < costs.num_layers(); ++layer) {
    const LayerSpec& spec = costs.specs()[static_cast<size_t>(layer)];
    for (const HalfCost* half : {&spec.attention, &spec.mlp})
      flops += HalfFlops(*half, load, costs.HasBackward(layer), costs.Trainable(layer));
  }
  return flops;
}

PlanForecast ForecastPlan(const PlanRequest& request, const Plan& plan) {
  const CostModel::Options options = request.CostOptions(plan);
  const CostModel costs(request.model, request.cluster, options, request.profile.get());
  PlanForecast forecast;
  forecast.error_band = costs.error_band();
  forecast.traffic = TrafficOf(request, costs, plan);
  std::vector<double> steps;
  double tokens = 0, flops = 0;
  for (size_t step = 0; step < request.workload.steps.size(); ++step) {
    const StepForecaster forecaster(request, costs, plan, step);
    steps.push_back(forecaster.step_s());
    for (const LayerLoad& load : request.workload.steps[step]) {
      tokens += static_cast<double>(load.tokens);
      flops += ModelFlops(costs, load);
    }
    if (step > 0) continue;
    forecast.stages = forecaster.Stages();
    forecast.bubbles = forecaster.Bubbles();
    const CostModel free(request.model, WithoutLinks(request.cluster), options,
                         request.profile.get());
    forecast.communication_share = 1 - forecaster.SecondsWithoutLinks(free) / forecaster.step_s();
  }
  forecast.step_s = Percentiles(steps, forecast.error_band);
  const double seconds = std::accumulate(steps.begin(), steps.end(), 0.0);
  forecast.tokens_per_s = tokens / seconds;
  forecast.packs_per_s = static_cast<double>(request.workload.global_batch()) *
                         static_cast<double>(steps.size()) / seconds;
  forecast.mfu = flops / seconds / (plan.num_ranks() * request.cluster.peak_flops);
  return forecast;
}

}  // namespace equipoise
