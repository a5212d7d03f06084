#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>
#include <vector>

#include "balance/costs/collective_time.h"
#include "balance/costs/memory_model.h"
#include "models/families/adapters.h"
#include "models/families/families.h"
#include "models/families/unfreeze.h"
#include "trainer/outputs/html_text.h"
#include "trainer/planner/plan_report.h"
#include "trainer/planner/plan_yaml.h"

namespace equipoise {
namespace {

constexpr int kBarWidth = 20;

double GiB(int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); }

// A readable number, such as "1,267,819" or "3.142".
std::string Number(double value) { return ReadableNumber(value); }

// A share in percent; 0 if it would be printed as "-0.0" with one decimal.
double Percent(double share) { return std::abs(share) < 0.0005 ? 0 : 100 * share; }

std::string Bar(double share) {
  const int filled = std::clamp(static_cast<int>(std::lround(share * kBarWidth)), 0, kBarWidth);
  return fmt::format("[{}{}]", std::string(filled, '#'), std::string(kBarWidth - filled, '.'));
}

// Layers of a rank by kind of recomputation: "3 attention, 2 full".
std::string DescribeRecompute(const std::vector<Recompute>& kinds) {
  std::string text;
  for (const Recompute kind : {Recompute::kElementwise, Recompute::kAttention, Recompute::kMlp,
                               Recompute::kFull, Recompute::kOffload, Recompute::kFullOffload}) {
    const auto count = std::count(kinds.begin(), kinds.end(), kind);
    if (count == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, ToString(kind));
  }
  return text.empty() ? "-" : text;
}

// A row of the table of ranks, over all stages of the rank; of lanes, which hold the same, the
// first.
struct RankRow {
  std::string layers;  // such as "0-3 28-30"
  double forward_s = 0, backward_s = 0;
  std::vector<Recompute> recompute;
};

std::vector<RankRow> RankRows(const PlanReport& report) {
  const Plan& plan = report.best().plan;
  std::vector<RankRow> rows(static_cast<size_t>(plan.pipeline()));
  for (int number = 0; number < plan.num_stages(); ++number) {
    if (plan.LaneOf(number) > 0) continue;
    const StageForecast& stage = report.forecast.stages[static_cast<size_t>(number)];
    RankRow& row = rows[static_cast<size_t>(stage.pipeline_rank)];
    const int last = stage.end_layer - 1;
    row.layers += (row.layers.empty() ? "" : " ") + std::to_string(stage.first_layer);
    if (last > stage.first_layer) row.layers += fmt::format("-{}", last);
    row.forward_s += stage.forward_s;
    row.backward_s += stage.backward_s;
    for (int layer = stage.first_layer; layer < stage.end_layer; ++layer) {
      row.recompute.push_back(plan.recompute[static_cast<size_t>(layer)]);
    }
  }
  return rows;
}

// What a pack holds: samples by number, or as many as the limits allow.
std::string DescribePacks(const PlanReport& report) {
  const std::string& method = report.after.method;
  const std::string samples = fmt::format("{:.1f} samples each", report.samples_per_pack);
  if (method == "random" || method == "length_grouped") return samples + ", by number";
  const std::string tokens = Number(static_cast<double>(report.tokens)) + " tokens";
  if (method == "packed") return fmt::format("{} at most, {}", tokens, samples);
  return fmt::format("{} and {} tiles at most, {}", tokens,
                     Number(static_cast<double>(report.tiles)), samples);
}

// Hours, GPU-days and cost of so many steps.
void PrintCost(const char* of, double steps, double gpu_days, double cost, const PlanReport& report,
               std::ostream& out) {
  out << fmt::format("{:<8} {} steps: {:.4g} hours, {:.4g} GPU-days", of, Number(std::ceil(steps)),
                     steps * report.mean_step_s() / 3600, gpu_days);
  const Cluster& cluster = report.request.cluster;
  if (cost > 0 && cluster.lists_price) {
    out << fmt::format(", USD {} at the list price of {:.2f} a GPU hour", Number(cost),
                       cluster.price_per_device_hour);
  } else if (cost > 0) {
    out << ", cost " << Number(cost);
  }
  out << "\n";
}

void PrintGoal(const GoalReport& report, std::ostream& out) {
  const PlanGoal& goal = report.goal;
  if (!goal.given()) return;
  out << "goal     " << ToString(ObjectiveOf(goal));
  if (goal.max_gpus > 0) out << ", at most " << goal.max_gpus << " GPUs";
  if (goal.deadline_h > 0) out << fmt::format(", within {:.4g} hours", goal.deadline_h);
  if (goal.budget > 0) out << ", for at most " << Number(goal.budget);
  out << (report.miss.empty() ? "" : "; missed: " + report.miss) << "\n";
}

// Prints the numbers of GPUs among which the goal has chosen.
void PrintSizes(const GoalReport& report, std::ostream& out) {
  if (report.sizes.size() + report.left_out.size() < 2) return;
  out << "\n  GPUs     hours  GPU-days      cost  samples/s  GB a rank, between and in nodes  plan "
         "(* = chosen, - = misses a limit)\n";
  size_t behind = 0;
  for (size_t i = 0; i < report.sizes.size(); ++i) {
    const SizedPlan& size = report.sizes[i];
    const RunFigures& figures = size.figures;
    if (!size.front && i != report.chosen) {
      ++behind;
      continue;
    }
    out << (i == report.chosen ? '*'
            : size.keeps       ? ' '
                               : '-')
        << fmt::format(" {:4}  {:>8}  {:>8}  {:>8}  {:>9}  {:>16}  {:>13}  {}\n", figures.gpus,
                       Number(figures.hours), Number(figures.gpu_hours() / 24),
                       figures.cost > 0 ? Number(figures.cost) : "-", Number(figures.samples_per_s),
                       Number(1e-9 * figures.traffic.between_nodes_bytes),
                       Number(1e-9 * figures.traffic.within_node_bytes), DescribeMesh(size.plan));
  }
  if (behind > 0) {
    out << fmt::format("  {} more: another is as short, as cheap and sends no more between nodes\n",
                       behind);
  }
  for (const SizeLeftOut& each : report.left_out) {
    out << fmt::format("  {:4}  {}\n", each.gpus, each.reason);
  }
}

// The line about islands, if there are any.
std::string DescribeIslands(const PlanReport& report) {
  const IslandsForecast& islands = report.islands;
  if (islands.every == 0) return "";
  const int ranks = report.best().plan.num_ranks();
  return fmt::format(
      "islands  {} of {} rank{}, each by the plan below; an outer step every {} steps takes {:.3g} "
      "s "
      "({:.2g} % of the time) and sends {} GB a rank\n",
      islands.count, ranks, ranks == 1 ? "" : "s", islands.every, islands.outer_s,
      100 * islands.outer_s_per_step() / report.mean_step_s(), Number(1e-9 * islands.outer_bytes));
}

void PrintHead(const PlanReport& report, std::ostream& out) {
  const PlanForecast& f = report.forecast;
  const Cluster& cluster = report.request.cluster;
  out << "samples  " << report.sample_source << "\n";
  if (!report.chat_template.empty())
    out << "         conversations become tokens by data.template: " << report.chat_template
        << "\n";
  if (report.oversize > 0) {
    out << "         " << Number(static_cast<double>(report.oversize))
        << " of them are above the limits and left out\n";
  }
  out << fmt::format("packs    {}; {} a step\n", DescribePacks(report),
                     Number(static_cast<double>(report.global_batch())))
      << (report.packing_change.empty() ? "" : "         " + report.packing_change + "\n")
      << fmt::format("cluster  {}, {} node{} of {}; the plan uses {} ranks\n", cluster.name,
                     cluster.nodes, cluster.nodes == 1 ? "" : "s", cluster.devices_per_node,
                     report.best().plan.num_ranks())
      << DescribeIslands(report)
      << fmt::format("times    {}\n",
                     report.request.profile
                         ? "from measured layers (cluster.profile)"
                         : fmt::format("predicted for {} on that device, not measured",
                                       report.request.style.program->name))
      << "plan     " << DescribeMesh(report.best().plan) << "\n"
      << fmt::format(
             "step     {:.4g} s (p10 {:.4g}, p90 {:.4g}); MFU {:.1f} %; {:.1f} % shorter with "
             "links that "
             "take no time\n",
             f.step_s.p50, f.step_s.p10, f.step_s.p90, 100 * f.mfu, 100 * f.communication_share)
      << fmt::format("rates    {} tokens/s, {} samples/s\n", Number(f.tokens_per_s),
                     Number(report.samples_per_s()))
      << fmt::format(
             "traffic  each rank sends {} GB between nodes and {} GB within one in a step\n",
             Number(1e-9 * f.traffic.between_nodes_bytes),
             Number(1e-9 * f.traffic.within_node_bytes));
  PrintCost("run", static_cast<double>(report.steps), report.gpu_days(), report.cost(), report,
            out);
  PrintCost("epoch", report.epoch_steps, report.epoch_gpu_days(), report.epoch_cost(), report, out);
  PrintGoal(report.goal, out);
}

void PrintRanks(const PlanReport& report, std::ostream& out) {
  const std::vector<RankRow> rows = RankRows(report);
  size_t width = 6;
  for (const RankRow& row : rows) width = std::max(width, row.layers.size());
  const int columns = static_cast<int>(width);
  const double memory = static_cast<double>(report.request.cluster.memory_bytes);
  out << fmt::format(
      "\nrank  {:<{}}  forward  backward  memory of {:.1f} GiB{:>{}} recomputed layers\n", "layers",
      columns, GiB(report.request.cluster.memory_bytes), "", kBarWidth - 8);
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    const RankRow& row = rows[rank];
    const int64_t bytes = report.best().memory[rank].total();
    out << fmt::format("{:4}  {:<{}} {:5.1f} ms {:6.1f} ms  ", rank, row.layers, columns,
                       1e3 * row.forward_s, 1e3 * row.backward_s)
        << Bar(static_cast<double>(bytes) / memory) << fmt::format(" {:5.1f} GiB  ", GiB(bytes))
        << DescribeRecompute(row.recompute) << "\n";
  }
  const auto fullest = std::max_element(
      report.best().memory.begin(), report.best().memory.end(),
      [](const MemoryForecast& a, const MemoryForecast& b) { return a.total() < b.total(); });
  out << fmt::format(
      "fullest: weights {:.1f}, gradients {:.1f}, optimizer {:.1f}, activations {:.1f}, temporary "
      "{:.1f}, communication {:.1f}, reserve {:.1f} GiB\n",
      GiB(fullest->parameters), GiB(fullest->gradients), GiB(fullest->optimizer),
      GiB(fullest->activations), GiB(fullest->temporary), GiB(fullest->communication),
      GiB(fullest->reserve));
  const Cluster& cluster = report.request.cluster;
  const int64_t host = HostBytesOfNode(cluster, report.best().plan, report.best().memory);
  if (host > 0) {
    const int islands =
        IslandsOfNode(cluster, report.best().plan.num_ranks(), report.islands.count);
    out << fmt::format("host: offloaded {:.1f} GiB of the {:.1f} GiB of a node\n",
                       GiB(islands * host), GiB(islands * cluster.host.bytes));
  }
}

// Prints ranges of layers of one kind: "0 patch embedding, 1-45 vision block, ...".
void PrintLayers(const PlanReport& report, std::ostream& out) {
  const std::vector<LayerSpec> specs = LayerSpecs(report.request.model);
  out << "layers:";
  for (size_t begin = 0, end = 0; begin < specs.size(); begin = end) {
    while (end < specs.size() && specs[end].kind == specs[begin].kind) ++end;
    out << (begin > 0 ? ", " : " ") << begin;
    if (end - begin > 1) out << "-" << end - 1;
    out << " " << specs[begin].title;
  }
  out << "\n";
  for (const std::string& line :
       {DescribeLora(report.request.model), DescribeUnfrozen(report.request.model)}) {
    if (!line.empty()) out << line << "\n";
  }
}

void PrintBubbles(const BubbleShares& bubbles, std::ostream& out) {
  out << fmt::format(
      "\nwaiting {:.1f} % of the step: fill and drain {:.1f}, uneven stages {:.1f}, uneven "
      "micro-batches {:.1f}, transfers and reductions {:.1f}, uneven data "
      "ranks "
      "{:.1f}\n",
      Percent(bubbles.total()), Percent(bubbles.fill_and_drain), Percent(bubbles.uneven_stages),
      Percent(bubbles.uneven_micro_batches), Percent(bubbles.communication),
      Percent(bubbles.uneven_data_ranks));
}

void PrintBalance(const PlanReport& report, std::ostream& out) {
  out << "\nbalance  micro-batches     pad  dist tiles  dist tokens  dist time\n";
  for (const PlanBalance* each : {&report.before, &report.after}) {
    out << fmt::format("{:<14} {:>8}   {:5.3f}  {:10.3f}  {:11.3f}  {:9.3f}\n", each->method,
                       Number(static_cast<double>(each->micro_batches)), each->pad_ratio,
                       each->dist_ratio_vision, each->dist_ratio_text, each->dist_ratio_time);
  }
}

// Prints the best plans; those that no other dominates in time and memory are marked.
void PrintBest(const PlanReport& report, std::ostream& out) {
  const std::vector<ScoredPlan>& plans = report.search.plans;
  out << fmt::format("\nbest of {} plans (* = none is both faster and smaller)\n",
                     report.search.considered);
  for (const ScoredPlan& each : plans) {
    const bool dominated = std::any_of(plans.begin(), plans.end(), [&](const ScoredPlan& other) {
      return other.step_s < each.step_s && other.peak_bytes() < each.peak_bytes();
    });
    out << fmt::format("{} {:8.4g} s  {:5.1f} GiB  ", dominated ? ' ' : '*', each.step_s,
                       GiB(each.peak_bytes()))
        << DescribeMesh(each.plan) << "\n";
  }
}

// Limits that the planner has changed, which must be pinned together with a plan.
PlanPrediction ChangedLimits(const PlanReport& report) {
  if (!report.requested) return {};
  return {0, 0, 0, report.tiles, report.tokens, report.global_batch()};
}

}  // namespace

std::string PlanSections(const PlanReport& report) {
  const Plan& plan = report.best().plan;
  return PlanToYaml(plan, ChangedLimits(report), report.request.RunsAhead(plan));
}

namespace {

// Prints trials by measured time; the first is the plan of the report.
void PrintTrials(const PlanReport& report, std::ostream& out) {
  if (report.trials.empty()) return;
  out << "\ntried    predicted   measured (p10 to p90)       difference\n";
  for (const PlanTrial& each : report.trials) {
    const std::string predicted = fmt::format("{:8.4g} s  ", each.plan.step_s);
    if (!each.failure.empty()) {
      out << "      " << predicted << DescribeMesh(each.plan.plan) << ": " << each.failure << "\n";
      continue;
    }
    const double median = each.Percentile(0.5);
    out << "      " << predicted
        << fmt::format(" {:8.4g} s ({:.4g} to {:.4g})  {:+6.0f} %  ", median, each.Percentile(0.1),
                       each.Percentile(0.9), 100 * (median / each.plan.step_s - 1))
        << DescribeMesh(each.plan.plan) << "\n";
  }
  out << "\nthe fastest, to train with it:\n" << PlanSections(report);
}

void PrintRejected(const PlanReport& report, std::ostream& out) {
  out << "\nnot taken\n";
  if (report.search.rejected.empty())
    out << "  none: no other plan was tried beside those above (docs/planner.md, Choices)\n";
  for (const RejectedPlan& each : report.search.rejected) {
    out << "  " << DescribeMesh(each.plan) << ": " << each.reason << "\n";
  }
}

}  // namespace

void PrintPlan(const PlanReport& report, bool explain, std::ostream& out) {
  PrintHead(report, out);
  PrintSizes(report.goal, out);
  PrintRanks(report, out);
  PrintLayers(report, out);
  PrintBubbles(report.forecast.bubbles, out);
  PrintBalance(report, out);
  PrintBest(report, out);
  PrintTrials(report, out);
  if (explain) PrintRejected(report, out);
}

}  // namespace equipoise
