#include "trainer/planner/plan_run.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "balance/costs/collective_time.h"
#include "balance/costs/cost_model.h"
#include "balance/costs/stage_costs.h"
#include "balance/search/outer_forecast.h"
#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/stages/plan_schedule.h"
#include "parallel/schedule/builders.h"
#include "trainer/device/bf16_units.h"
#include "trainer/outputs/html_text.h"
#include "trainer/planner/goal_search.h"
#include "trainer/planner/limit_search.h"
#include "trainer/planner/make_plan.h"
#include "trainer/planner/plan_pins.h"
#include "trainer/planner/plan_workload.h"
#include "trainer/planner/sample_costs.h"
#include "trainer/settings/diloco.h"
#include "trainer/settings/fp8.h"
#include "trainer/settings/group_settings.h"
#include "trainer/settings/model_section.h"
#include "trainer/settings/odd_settings.h"
#include "trainer/settings/own_template.h"
#include "trainer/settings/run_cluster.h"
#include "trainer/settings/run_style.h"

namespace equipoise {
namespace {

// The precision for a cluster: the GPUs of all presets have bf16 matrix units, while `local` is the
// device of this machine.
Precision PrecisionOn(const Cluster& cluster, const TrainSection& train) {
  if (train.precision != "auto") return ParsePrecision(train.precision);
  const bool gpus = cluster.multiprocessors > 0;
  return ChoosePrecision(train.precision, gpus || ThisMachineHasBf16MatrixUnits(train.device));
}

std::shared_ptr<const Profile> ProfileFor(const RunConfig& config, const PlanRequest& request,
                                          Precision precision) {
  const std::string& path = config.cluster.profile;
  if (path.empty()) return nullptr;
  auto profile = std::make_shared<Profile>(ReadProfile(path));
  const ProfileUse use{request.cluster.device, "", ToString(precision), 0};
  const std::string warning = RequireProfile(*profile, use, path, config.cluster.force_profile);
  if (!warning.empty()) spdlog::warn("{}", warning);
  return profile;
}

bool HasScheduleFile(const RunConfig& config) {
  return config.parallel.schedule && FindSchedule(*config.parallel.schedule) == nullptr;
}

// Throws ConfigError when the plan's schedule cannot run the first step of training, or the memory
// probe before it.
void RequireRuns(const RunConfig& config, const PlanRequest& request, const Plan& plan) {
  const StageLayout stages(request.model, plan, request.frozen);
  const PlanSchedule schedule(plan);
  const CostModel costs(request.model, request.cluster, request.CostOptions(plan),
                        request.profile.get());
  const auto require = [&](const std::vector<LayerLoad>& loads) {
    schedule.StepOps(stages, loads, StageCosts(costs, plan, request.cluster, loads));
  };
  const auto count = static_cast<size_t>(Accumulation(config, plan));
  const Workload& workload = request.workload;
  if (config.run.probe != MemoryProbe::kNever)
    require(std::vector<LayerLoad>(count, workload.worst));
  const std::vector<int> assigned = DealtPacks(workload, 0, plan.data());
  for (int rank = 0; rank < plan.data(); ++rank) {
    std::vector<LayerLoad> loads;
    for (const int pack : PacksOfRank(assigned, plan.data(), rank)) {
      loads.push_back(workload.steps.front()[static_cast<size_t>(pack)]);
    }
    require(loads);
  }
}

// The plan with a schedule from a file, for which there is no search.
FittedRun GivenRun(const RunConfig& config, const PlannedRun& planned, PlanRequest request) {
  const Plan plan = MakePlan(config, request.model, request.ranks);
  RequireRuns(config, request, plan);
  PlanSearchResult result;
  result.plans.push_back(ScorePlan(request, plan));
  result.considered = result.simulated = 1;
  return {planned, std::move(request), std::move(result)};
}

// The fastest plans, among which one is chosen by its traffic.
constexpr int kTrafficPlans = 20;

constexpr int64_t kTokenBin = 64;

std::vector<SampleHistogram> Histograms(const SampleList& samples, const ImageSpec& images) {
  SampleHistogram tiles{"Samples by tiles", 1, {}};
  SampleHistogram tokens{"Samples by tokens", kTokenBin, {}};
  const auto add = [](SampleHistogram& histogram, int64_t value) {
    const auto bin = static_cast<size_t>(value / histogram.bin_width);
    if (bin >= histogram.counts.size()) histogram.counts.resize(bin + 1, 0);
    ++histogram.counts[bin];
  };
  for (int64_t i = 0; i < samples.size; ++i) {
    const std::optional<SampleSize> size = samples.size_at(i);
    if (!size) continue;
    add(tiles, images.TilesOf(size->patches));
    add(tokens, size->tokens);
  }
  return {tiles, tokens};
}

}  // namespace

PlanRequest PlanRequestOf(const RunConfig& config, const ModelConfig& model,
                          const Workload& workload, const PlanTarget& target) {
  const int devices = MakeCluster(config.cluster).num_devices();
  PlanRequest request;
  request.ranks = target.ranks > 0 ? target.ranks : devices;
  const DilocoSection& diloco = config.train.diloco;
  request.islands = {target.islands, diloco.every,
                     ElementBytes(ParsePrecision(diloco.reduce_dtype))};
  request.cluster = ClusterFor(config.cluster, request.ranks, target.islands);
  request.model = model;
  request.frozen = config.model.freeze;
  const Precision precision =
      target.precision ? *target.precision : PrecisionOn(request.cluster, config.train);
  CheckMaster(config.train.master, precision);
  CheckFp8(config, precision);
  request.element_bytes = ElementBytes(precision);
  request.style = StyleOf(config.train, static_cast<int>(config.parallel.context.value_or(1)));
  request.workload = workload;
  request.profile = ProfileFor(config, request, precision);
  if (request.profile) request.cluster = WithMeasuredLinks(request.cluster, *request.profile);
  request.pins = PlanPinsOf(config, model);
  request.partition = config.balance.partition;
  request.recompute = config.balance.recompute;
  request.threads = target.threads;
  request.keep = std::max(request.keep, target.trials);
  if (config.goal.objective == Objective::kTraffic) {
    request.keep = std::max(request.keep, kTrafficPlans);
  }
  return request;
}

namespace {

// PlanRun() of one island.
PlanReport PlanIsland(RunConfig config, const PlanTarget& target, const OrderPlans& order) {
  const ModelConfig model = ModelConfigOf(config);
  if (!target.started) {  // a run that is started has said so already
    for (const std::string& line : OddSettings(config, ImageSpecOf(model))) {
      spdlog::warn("{}", line);
    }
    if (const std::string line = OtherTemplate(config, model); !line.empty())
      spdlog::warn("{}", line);
  }
  const SampleCosts costs = GatherSampleCosts(config, model);
  PlannedRun planned = PlanWorkload(costs, config, model);
  config.train.steps = StepsOf(config.train, planned.epoch_packs / target.islands);
  const int64_t global_batch = target.islands * config.train.global_batch;
  if (planned.epoch_packs < global_batch) {
    throw DataError(fmt::format(
        "{}: {} samples make {} micro-batches, fewer than the {} of a step ({} samples are above "
        "the limits); lower train.global_batch, or raise balance.tiles and balance.tokens",
        costs.source, costs.epoch_samples(), planned.epoch_packs, global_batch, planned.oversize));
  }
  const auto given = [&] {
    return GivenRun(config, planned, PlanRequestOf(config, model, planned.workload, target));
  };
  GoalRun chosen = HasScheduleFile(config) ? CheckGoal(costs, config, given(), target)
                                           : FitGoal(costs, config, planned, model, target);
  FittedRun& fitted = chosen.run;
  planned = fitted.planned;
  PlanReport report;
  report.goal = std::move(chosen.report);
  if (!report.goal.miss.empty()) spdlog::warn("{}", report.goal.miss);
  report.request = std::move(fitted.request);
  report.search = std::move(fitted.search);
  report.tiles = planned.images.TilesOf(planned.limits.patches);
  report.tokens = planned.limits.tokens;
  report.requested = planned.requested;
  report.packing_change = DescribeChange(planned, report.request);
  BestPlan(report.request, report.search);  // throws when none fits
  report.islands.count = target.islands;
  if (order) order(report);
  const Plan plan = report.best().plan;
  report.islands = ForecastIslands(report.request, plan);
  report.forecast = OfAllIslands(ForecastPlan(report.request, plan), report.islands);
  report.sample_source = fmt::format("{}{}{} samples", costs.source,
                                     costs.weight == 1 ? ", " : ", which stand for about ",
                                     ReadableNumber(static_cast<double>(costs.epoch_samples())));
  if (config.data.costs.empty()) report.chat_template = config.data.chat_template;
  report.oversize = planned.oversize;
  report.histograms = Histograms(costs.list, planned.images);
  report.samples_per_pack = planned.samples_per_pack;
  report.epoch_steps =
      static_cast<double>(planned.epoch_packs) / static_cast<double>(report.global_batch());
  report.steps = config.train.epochs > 0
                     ? StepsOf(config.train.epochs, planned.epoch_packs, report.global_batch())
                     : config.train.steps;
  const BalanceBeforeAfter balance = planned.balance(plan.data());
  report.before = balance.before;
  report.after = balance.after;
  return report;
}

// PlanTraining() of one island.
TrainingPlan TrainingPlanOfIsland(const RunConfig& config, const ModelConfig& model,
                                  const SampleCosts& costs, const PlanTarget& target) {
  if (HasScheduleFile(config)) return {MakePlan(config, model, target.ranks), {}};
  const PlannedRun first = PlanWorkload(costs, config, model);
  PlanTarget started = target;
  started.started = true;
  const GoalRun chosen = FitGoal(costs, config, first, model, started);
  const FittedRun& fitted = chosen.run;
  if (!chosen.report.miss.empty()) spdlog::warn("{}", chosen.report.miss);
  const ScoredPlan best = BestPlan(fitted.request, fitted.search);
  const PlanForecast forecast = ForecastPlan(fitted.request, best.plan);
  const PlannedRun& planned = fitted.planned;
  if (planned.requested) {
    const bool faster = planned.requested->gain > 0;
    spdlog::log(faster ? spdlog::level::info : spdlog::level::warn, "{}",
                DescribeChange(planned, fitted.request));
  }
  std::vector<int64_t> memory;
  memory.reserve(best.memory.size());
  for (const MemoryForecast& rank : best.memory)
    memory.push_back(rank.total() - rank.reserve);  // which no tensor takes
  return {best.plan,
          {forecast.step_s.p50, forecast.error_band, best.peak_bytes(),
           planned.images.TilesOf(planned.limits.patches), planned.limits.tokens,
           planned.requested ? planned.workload.global_batch() : 0, std::move(memory)}};
}

// Calls `plan` with the configuration of one of several islands, and its ranks; says of its errors
// that they are of one.
template <class Plan>
auto OfEachIsland(const RunConfig& config, PlanTarget target, const Plan& plan) {
  const DilocoSection& diloco = config.train.diloco;
  const int all = target.ranks > 0 ? target.ranks : MakeCluster(config.cluster).num_devices();
  const int ranks = RanksOfIsland(config, diloco.islands == 1 ? 1 : all);
  if (diloco.islands == 1) return plan(config, target);
  target.ranks = ranks;
  target.islands = static_cast<int>(diloco.islands);
  try {
    return plan(OfIsland(config), target);
  } catch (const UserError& error) {
    throw UserError(error.code(),
                    fmt::format("{} (for each of {})", error.what(), DescribeIslands(config, all)));
  }
}

}  // namespace

PlanReport PlanRun(const RunConfig& config, const PlanTarget& target, const OrderPlans& order) {
  return OfEachIsland(config, target, [&](const RunConfig& island, const PlanTarget& ranks) {
    return PlanIsland(island, ranks, order);
  });
}

TrainingPlan PlanTraining(const RunConfig& config, const ModelConfig& model,
                          const SampleCosts& costs, const PlanTarget& target) {
  TrainingPlan planned =
      OfEachIsland(config, target, [&](const RunConfig& island, const PlanTarget& ranks) {
        return TrainingPlanOfIsland(island, model, costs, ranks);
      });
  planned.prediction.global_batch *= config.train.diloco.islands;
  return planned;
}

}  // namespace equipoise
