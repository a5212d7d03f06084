#include "configs/yaml/config_json.h"
#include "models/families/families.h"
#include "trainer/planner/plan_report.h"

namespace equipoise {
namespace {

Json MemoryJson(const MemoryForecast& memory) {
  return {{"parameters", memory.parameters},
          {"gradients", memory.gradients},
          {"optimizer", memory.optimizer},
          {"activations", memory.activations},
          {"temporary", memory.temporary},
          {"communication", memory.communication},
          {"reserve", memory.reserve},
          {"total", memory.total()},
          {"host", memory.host}};
}

Json BalanceJson(const PlanBalance& balance) {
  return {{"group", balance.method},
          {"pad_ratio", balance.pad_ratio},
          {"dist_ratio_vision", balance.dist_ratio_vision},
          {"dist_ratio_text", balance.dist_ratio_text},
          {"dist_ratio_time", balance.dist_ratio_time},
          {"micro_batches", balance.micro_batches}};
}

Json StagesJson(const PlanReport& report) {
  const ScoredPlan& best = report.best();
  Json stages = Json::array();
  for (const StageForecast& stage : report.forecast.stages) {
    Json recompute = Json::array();
    for (int layer = stage.first_layer; layer < stage.end_layer; ++layer) {
      recompute.push_back(ToString(best.plan.recompute[static_cast<size_t>(layer)]));
    }
    const MemoryForecast& memory = best.memory[static_cast<size_t>(stage.pipeline_rank)];
    stages.push_back({{"rank", stage.pipeline_rank},
                      {"layers", {stage.first_layer, stage.end_layer - 1}},
                      {"forward_ms", 1e3 * stage.forward_s},
                      {"backward_ms", 1e3 * stage.backward_s},
                      {"recompute_ms", 1e3 * stage.recompute_s},
                      {"memory_bytes", memory.total()},
                      {"memory", MemoryJson(memory)},
                      {"recompute", recompute}});
  }
  return stages;
}

// The fields of a plan, with the axes of its mesh in one object and without those that `encoder`
// and `stages` show for the best plan only.
Json PlanSummary(const Plan& plan) {
  Json summary = ConfigToJson(plan);
  for (const char* key : {"encoder", "encoder_ranks", "encoder_chunks", "encoder_tensor",
                          "stage_layers", "recompute_layers"}) {
    summary.erase(key);
  }
  for (const AxisSize& each : plan.mesh.axes()) {
    const std::string axis = AxisName(each.axis);
    summary["mesh"][axis] = summary[axis];
    summary.erase(axis);
  }
  return summary;
}

Json EncoderJson(const Plan& plan) {
  Json encoder = {{"placement", ToString(plan.encoder)}};
  if (plan.encoder_ranks() > 0) encoder["ranks"] = plan.encoder_ranks();
  if (FillsBubbles(plan.encoder)) {
    encoder["copies"] = plan.encoder_copies();
    encoder["chunks"] = plan.encoder_chunks();
    if (plan.encoder_lanes() > 1) encoder["tensor"] = plan.encoder_tensor();
  }
  return encoder;
}

Json BestPlans(const PlanReport& report) {
  Json plans = Json::array();
  for (const ScoredPlan& each : report.search.plans) {
    Json plan = PlanSummary(each.plan);
    plan["step_s"] = each.step_s;
    plan["peak_bytes"] = each.peak_bytes();
    plans.push_back(plan);
  }
  return plans;
}

Json Trials(const PlanReport& report) {
  Json trials = Json::array();
  for (const PlanTrial& each : report.trials) {
    Json trial = PlanSummary(each.plan.plan);
    trial["predicted_step_s"] = each.plan.step_s;
    if (each.failure.empty()) {
      trial["step_s"] = {{"p10", each.Percentile(0.1)},
                         {"p50", each.Percentile(0.5)},
                         {"p90", each.Percentile(0.9)}};
      trial["difference"] = each.Percentile(0.5) / each.plan.step_s - 1;
    } else {
      trial["failure"] = each.failure;
    }
    trials.push_back(trial);
  }
  return trials;
}

Json Rejected(const PlanReport& report) {
  Json rejected = Json::array();
  for (const RejectedPlan& each : report.search.rejected) {
    Json plan = PlanSummary(each.plan);
    plan["reason"] = each.reason;
    rejected.push_back(plan);
  }
  return rejected;
}

Json TrafficJson(const RankTraffic& traffic) {
  return {{"between_nodes_bytes", traffic.between_nodes_bytes},
          {"within_node_bytes", traffic.within_node_bytes}};
}

Json GoalJson(const GoalReport& report) {
  Json goal = {{"objective", ToString(ObjectiveOf(report.goal))}, {"kept", report.miss.empty()}};
  if (report.goal.max_gpus > 0) goal["max_gpus"] = report.goal.max_gpus;
  if (report.goal.deadline_h > 0) goal["deadline_hours"] = report.goal.deadline_h;
  if (report.goal.budget > 0) goal["budget"] = report.goal.budget;
  goal["sizes"] = goal["left_out"] = Json::array();
  for (size_t i = 0; i < report.sizes.size(); ++i) {
    const SizedPlan& each = report.sizes[i];
    Json size = PlanSummary(each.plan);
    size["gpus"] = each.figures.gpus;
    size["hours"] = each.figures.hours;
    size["gpu_days"] = each.figures.gpu_hours() / 24;
    size["cost"] = each.figures.cost;
    size["samples_per_s"] = each.figures.samples_per_s;
    size["traffic"] = TrafficJson(each.figures.traffic);
    size["pareto"] = each.front;
    size["kept"] = each.keeps;
    size["chosen"] = i == report.chosen;
    goal["sizes"].push_back(size);
  }
  for (const SizeLeftOut& each : report.left_out) {
    goal["left_out"].push_back({{"gpus", each.gpus}, {"reason", each.reason}});
  }
  return goal;
}

Json LimitsJson(const PlanReport& report) {
  Json limits = {{"tiles", report.tiles}, {"tokens", report.tokens}};
  if (!report.requested) return limits;
  const RequestedPacking& own = *report.requested;
  const int64_t tiles = ImageSpecOf(report.request.model).TilesOf(own.limits.patches);
  const Json from = {{"tiles", tiles}, {"tokens", own.limits.tokens}};
  if (own.gain == 0) {
    limits["lowered_from"] = from;
  } else {
    limits["searched_from"] = from;
    limits["searched_from"]["global_batch"] = report.islands.count * own.global_batch;
    limits["gain"] = own.gain;
  }
  return limits;
}

}  // namespace

Json PlanToJson(const PlanReport& report) {
  const PlanForecast& forecast = report.forecast;
  const BubbleShares& bubbles = forecast.bubbles;
  Json json = PlanSummary(report.best().plan);
  json["config"] = report.config;
  json["settings"] = report.settings;
  json["sections"] = PlanSections(report);
  json["ranks"] = report.ranks();
  json["encoder"] = EncoderJson(report.best().plan);
  json["limits"] = LimitsJson(report);
  json["global_batch"] = report.global_batch();
  json["samples"] = report.sample_source;
  json["oversize"] = report.oversize;
  json["stages"] = StagesJson(report);
  json["step_s"] = {
      {"p10", forecast.step_s.p10}, {"p50", forecast.step_s.p50}, {"p90", forecast.step_s.p90}};
  json["bubble_share"] = bubbles.total();
  json["bubbles"] = {{"fill_and_drain", bubbles.fill_and_drain},
                     {"uneven_stages", bubbles.uneven_stages},
                     {"uneven_micro_batches", bubbles.uneven_micro_batches},
                     {"communication", bubbles.communication},
                     {"uneven_data_ranks", bubbles.uneven_data_ranks}};
  const IslandsForecast& islands = report.islands;
  if (islands.every > 0) {
    json["islands"] = {{"count", islands.count},
                       {"every", islands.every},
                       {"outer_s", islands.outer_s},
                       {"outer_bytes", islands.outer_bytes}};
  }
  json["communication_share"] = forecast.communication_share;
  json["tokens_per_s"] = forecast.tokens_per_s;
  json["samples_per_s"] = report.samples_per_s();
  json["traffic"] = TrafficJson(forecast.traffic);
  json["peak_bytes"] = report.best().peak_bytes();
  json["mfu"] = forecast.mfu;
  json["steps"] = report.steps;
  json["gpu_days"] = report.gpu_days();
  json["cost"] = report.cost();
  json["epoch"] = {{"steps", report.epoch_steps},
                   {"gpu_days", report.epoch_gpu_days()},
                   {"cost", report.epoch_cost()}};
  json["per_million_samples"] = {{"hours", report.hours_per_million_samples()},
                                 {"cost", report.cost_per_million_samples()}};
  if (report.goal.goal.given()) json["goal"] = GoalJson(report.goal);
  json["price_per_gpu_hour"] = report.request.cluster.price_per_device_hour;
  json["list_price"] = report.request.cluster.lists_price;
  json["constants"] = report.request.style.program->name;
  json["balance"] = {{"before", BalanceJson(report.before)}, {"after", BalanceJson(report.after)}};
  json["plans"] = BestPlans(report);
  json["rejected"] = Rejected(report);
  if (!report.trials.empty()) json["trials"] = Trials(report);
  return json;
}

}  // namespace equipoise
