#include "trainer/planner/goal_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <optional>
#include <utility>

#include "balance/costs/collective_time.h"
#include "balance/search/outer_forecast.h"
#include "balance/search/plan_forecast.h"
#include "balance/search/plan_search.h"
#include "configs/base/error.h"
#include "parallel/schedule/builders.h"
#include "trainer/settings/group_settings.h"
#include "trainer/settings/run_cluster.h"

// A loop around the search for a plan, over the number of GPUs. The fastest plan of a number is
// also its cheapest, since each GPU hour costs the same; for the traffic, all plans that a search
// keeps are compared. The search's lower bound of a step tells numbers that cannot keep a deadline
// or a budget without searching them.

namespace equipoise {
namespace {

using Clock = std::chrono::system_clock;

constexpr int kMostGrowth = 64;       // largest factor on the GPUs in the search for enough
constexpr double kOtherSteps = 0.95;  // a run's steps may be that much shorter than the first

// "2030-12-31" or "2030-12-31T18:00", UTC; nothing where the text is no date.
std::optional<Clock::time_point> DateOf(const std::string& text) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, end = 0;
  const char* at = text.c_str();
  if (std::sscanf(at, "%4d-%2d-%2d%n", &year, &month, &day, &end) != 3) return std::nullopt;
  at += end;
  if (*at != '\0') {
    if (std::sscanf(at, "T%2d:%2d%n", &hour, &minute, &end) != 2) return std::nullopt;
    if (at[end] != '\0') return std::nullopt;
  }
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok() || hour < 0 || hour > 23 || minute < 0 || minute > 59) return std::nullopt;
  return std::chrono::sys_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute);
}

std::string IsOver(const GoalSection& section) {
  return fmt::format("goal.deadline: {} is over; give a later one", section.deadline);
}

// A number of hours, such as "20", "20 h" or "20h".
std::optional<double> HoursOf(const std::string& text) {
  double hours = 0;
  int end = 0;
  if (std::sscanf(text.c_str(), "%lf%n", &hours, &end) != 1) return std::nullopt;
  const std::string unit = text.substr(static_cast<size_t>(end));
  const bool is_hours = unit.empty() || unit == "h" || unit == " h";
  return is_hours && std::isfinite(hours) ? std::optional(hours) : std::nullopt;
}

class GoalSearch {
 public:
  GoalSearch(const SampleCosts& costs, const RunConfig& config, const PlannedRun& first,
             PlanRequest request, const PlanTarget& target)
      : costs_(costs),
        config_(config),
        first_(first),
        target_(target),
        meshes_(target.trials > 0 ? MeshChoice::kAll : MeshChoice::kFewestAxesFirst),
        request_(std::move(request)) {
    const Clock::time_point now = Clock::now();
    report_.goal = GoalOf(config.goal, now, target.started);
    if (const auto date = DateOf(config.goal.deadline); date && *date <= now) {
      report_.miss = IsOver(config.goal);
    }
    if (report_.goal.budget > 0 && request_.cluster.price_per_device_hour <= 0) {
      throw ConfigError(
          fmt::format("goal.budget: no price of a GPU hour is known for cluster.preset {}; give "
                      "cluster.price_per_gpu_hour",
                      config_.cluster.preset));
    }
  }

  GoalRun Run() {
    return report_.goal.max_gpus > 0 && target_.ranks == 0 ? OfSizes() : OfGivenRanks();
  }

  // The best plan of a run, which is all that there is to choose from.
  GoalRun Of(FittedRun run) {
    if (!report_.goal.given() || !run.fits()) return {std::move(run), std::move(report_)};
    Add(std::move(run));
    PlanGoal goal = report_.goal;
    if (target_.started) {
      goal.max_gpus = 0;
      // The moment at which a rank asks must not change its plan.
      if (DateOf(config_.goal.deadline)) goal.deadline_h = 0;
    }
    const Candidate chosen = candidates_[Best(goal).value_or(0)];
    if (!Keeps(report_.goal, chosen.figures)) {
      // Others may keep it, which are not taken.
      const auto figures = target_.started ? std::vector{chosen.figures} : AllFigures();
      report_.miss = DescribeMiss(report_.goal, figures, MoreGpus());
      if (!target_.started) throw UserError(ExitCode::kNoPlan, report_.miss);
    }
    AddRow(0, chosen);
    return Take(chosen);
  }

 private:
  // A plan that could be taken.
  struct Candidate {
    size_t run = 0, plan = 0;  // the entry of runs_, and of its plans
    RunFigures figures;
  };

  RunFigures FiguresOf(const FittedRun& run, const Plan& plan) const {
    const IslandsForecast islands = ForecastIslands(run.request, plan);
    const PlanForecast forecast = OfAllIslands(ForecastPlan(run.request, plan), islands);
    RunFigures figures;
    figures.gpus = islands.count * plan.num_ranks();
    const double step_s = forecast.step_s.p50 + islands.outer_s_per_step();
    // Packs with lower limits are more, and so are the steps of an epoch.
    const int64_t step_packs = islands.count * run.planned.workload.global_batch();
    const int64_t steps = config_.train.epochs > 0
                              ? StepsOf(config_.train.epochs, run.planned.epoch_packs, step_packs)
                              : config_.train.steps;
    figures.hours = static_cast<double>(steps) * step_s / 3600;
    figures.cost = figures.gpu_hours() * run.request.cluster.price_per_device_hour;
    figures.samples_per_s = forecast.packs_per_s * run.planned.samples_per_pack;
    figures.traffic = forecast.traffic;
    return figures;
  }

  // Adds a run that fits, with the plans of it that the objective may prefer.
  void Add(FittedRun run) {
    const bool all = ObjectiveOf(report_.goal) == Objective::kTraffic;
    const size_t plans = all ? run.search.plans.size() : 1;
    for (size_t i = 0; i < plans; ++i) {
      candidates_.push_back({runs_.size(), i, FiguresOf(run, run.search.plans[i].plan)});
    }
    runs_.push_back(std::move(run));
  }

  // Which candidate to take: of those of one run, or of all; nothing where none keeps the goal.
  std::optional<size_t> Best(const PlanGoal& goal, std::optional<size_t> run = std::nullopt) const {
    std::vector<RunFigures> figures;
    std::vector<size_t> which;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (run && candidates_[i].run != *run) continue;
      figures.push_back(candidates_[i].figures);
      which.push_back(i);
    }
    const std::optional<size_t> best = ChooseRun(goal, figures);
    return best ? std::optional(which[*best]) : std::nullopt;
  }

  std::vector<RunFigures> AllFigures() const {
    std::vector<RunFigures> figures;
    for (const Candidate& each : candidates_) figures.push_back(each.figures);
    return figures;
  }

  // The candidate's run with its plan in front.
  GoalRun Take(const Candidate& chosen) {
    FittedRun& run = runs_[chosen.run];
    std::vector<ScoredPlan>& plans = run.search.plans;
    const auto place = plans.begin() + static_cast<std::ptrdiff_t>(chosen.plan);
    std::rotate(plans.begin(), place, place + 1);
    return {std::move(run), std::move(report_)};
  }

  GoalRun OfGivenRanks() { return Of(FitRun(costs_, config_, first_, request_, meshes_)); }

  GoalRun OfSizes() {
    const std::vector<int> sizes = ClusterSizes(report_.goal.max_gpus, NodeSize());
    for (const int gpus : sizes) TrySize(gpus);
    if (candidates_.empty()) TryLeftOut();
    if (candidates_.empty()) {
      // As if so many were given: with lower limits a plan may fit, else the error says what would.
      request_ = Resized(sizes.back());
      return OfGivenRanks();
    }
    const std::optional<size_t> best = Best(report_.goal);
    if (!best) {
      throw UserError(ExitCode::kNoPlan, DescribeMiss(report_.goal, AllFigures(), MoreGpus()));
    }
    for (size_t run = 0; run < runs_.size(); ++run) {
      const auto own = std::find_if(candidates_.begin(), candidates_.end(),
                                    [run](const Candidate& each) { return each.run == run; });
      const std::optional<size_t> kept = Best(report_.goal, run);
      AddRow(run, kept ? candidates_[*kept] : *own);
    }
    std::vector<RunFigures> rows;
    for (const SizedPlan& each : report_.sizes) rows.push_back(each.figures);
    const std::vector<bool> front = ParetoFront(rows);
    for (size_t i = 0; i < front.size(); ++i) report_.sizes[i].front = front[i];
    report_.chosen = candidates_[*best].run;
    return Take(candidates_[*best]);
  }

  void AddRow(size_t run, const Candidate& candidate) {
    report_.sizes.push_back({runs_[run].search.plans[candidate.plan].plan, candidate.figures,
                             /*front=*/true, Keeps(report_.goal, candidate.figures)});
  }

  int NodeSize() const { return MakeCluster(config_.cluster).devices_per_node; }

  PlanRequest Resized(int gpus) const {
    PlanRequest request = request_;
    request.ranks = gpus;
    request.cluster = ClusterFor(config_.cluster, gpus, target_.islands);
    if (request.profile) request.cluster = WithMeasuredLinks(request.cluster, *request.profile);
    return request;
  }

  FittedRun SearchSize(int gpus) const {
    return SearchRun(costs_, config_, first_, Resized(gpus), meshes_);
  }

  // Searches a number of GPUs, or leaves it out with the reason.
  void TrySize(int gpus) {
    double least_s = 0;
    try {
      least_s = LeastStepSeconds(Resized(gpus));
    } catch (const ConfigError&) {
      report_.left_out.push_back({gpus, "train.global_batch and what is pinned leave no mesh", 0});
      return;
    }
    if (std::isinf(least_s)) {
      report_.left_out.push_back({gpus, "the model does not fit the memory", 0});
      return;
    }
    RunFigures least;
    least.gpus = gpus;
    least.hours = kOtherSteps * least_s * static_cast<double>(config_.train.steps) / 3600;
    least.cost = least.gpu_hours() * request_.cluster.price_per_device_hour;
    if (!Keeps(report_.goal, least)) {
      std::string reason = fmt::format("{:.3g} hours or more", least.hours);
      if (report_.goal.budget > 0)
        reason += fmt::format(", at a cost of {:.4g} or more", least.cost);
      report_.left_out.push_back({gpus, std::move(reason), least.hours});
      return;
    }
    FittedRun run = SearchSize(gpus);
    if (run.fits()) return Add(std::move(run));
    report_.left_out.push_back({gpus, "no plan fits the memory", 0});
  }

  // Searches what was left out by its lower bound: the shortest of it, and the fewest GPU hours, to
  // tell how much is missing.
  void TryLeftOut() {
    std::vector<SizeLeftOut> bounded;
    std::copy_if(report_.left_out.begin(), report_.left_out.end(), std::back_inserter(bounded),
                 [](const SizeLeftOut& each) { return each.least_hours > 0; });
    std::sort(bounded.begin(), bounded.end(), [](const SizeLeftOut& a, const SizeLeftOut& b) {
      return a.least_hours < b.least_hours;
    });
    for (const bool shortest : {true, false}) {
      if (!shortest) std::reverse(bounded.begin(), bounded.end());  // the fewest GPUs first
      for (const SizeLeftOut& each : bounded) {
        FittedRun run = SearchSize(each.gpus);
        if (!run.fits()) continue;
        Add(std::move(run));
        break;
      }
    }
  }

  // More GPUs that keep the goal, as advice; empty where a deadline is not what is missed, or none
  // do.
  std::string MoreGpus() const {
    PlanGoal goal = report_.goal;
    const auto& schedule = config_.parallel.schedule;
    const bool from_file = schedule && FindSchedule(*schedule) == nullptr;
    if (goal.deadline_h <= 0 || target_.started || from_file) return "";
    int most = 0;
    for (const Candidate& each : candidates_) most = std::max(most, each.figures.gpus);
    if (goal.max_gpus > 0 && most > goal.max_gpus) return "";
    goal.max_gpus = 0;
    for (int growth = 2; growth <= kMostGrowth; growth *= 2) {
      PlanRequest request = Resized(most / target_.islands * growth);
      request.keep = 1;
      request.pins.data.reset();
      request.within_s = goal.deadline_h * 3600 / static_cast<double>(config_.train.steps);
      try {
        FittedRun run = SearchRun(costs_, config_, first_, request, MeshChoice::kAll);
        if (!run.fits() || !Keeps(goal, FiguresOf(run, run.search.plans.front().plan))) continue;
      } catch (const ConfigError&) {
        return "";  // the global batch cannot be divided any further
      }
      return fmt::format(", or {} {}", target_.ranks > 0 ? "--ranks" : "goal.max_gpus of",
                         most * growth);
    }
    return "";
  }

  const SampleCosts& costs_;
  const RunConfig& config_;
  const PlannedRun& first_;
  const PlanTarget& target_;
  const MeshChoice meshes_;
  PlanRequest request_;
  GoalReport report_;
  std::vector<FittedRun> runs_;
  std::vector<Candidate> candidates_;
};

}  // namespace

PlanGoal GoalOf(const GoalSection& section, Clock::time_point now, bool started) {
  PlanGoal goal;
  goal.objective = section.objective;
  goal.max_gpus = static_cast<int>(section.max_gpus.value_or(0));
  goal.budget = section.budget.value_or(0);
  if (section.deadline.empty()) return goal;
  if (const auto date = DateOf(section.deadline)) {
    const double left_h = std::chrono::duration<double, std::ratio<3600>>(*date - now).count();
    if (left_h <= 0 && !started) throw ConfigError(IsOver(section));
    goal.deadline_h = std::max(left_h, 0.0);
    return goal;
  }
  goal.deadline_h = HoursOf(section.deadline).value_or(0);
  if (goal.deadline_h <= 0) {
    throw ConfigError(fmt::format(
        "goal.deadline: '{}' is neither hours above 0, such as 20, nor a date; write a date as "
        "2030-12-31 or 2030-12-31T18:00",
        section.deadline));
  }
  return goal;
}

GoalRun FitGoal(const SampleCosts& costs, const RunConfig& config, const PlannedRun& first,
                const ModelConfig& model, const PlanTarget& target) {
  PlanRequest request = PlanRequestOf(config, model, first.workload, target);
  return GoalSearch(costs, config, first, std::move(request), target).Run();
}

GoalRun CheckGoal(const SampleCosts& costs, const RunConfig& config, FittedRun given,
                  const PlanTarget& target) {
  const PlannedRun planned = given.planned;
  return GoalSearch(costs, config, planned, given.request, target).Of(std::move(given));
}

}  // namespace equipoise
