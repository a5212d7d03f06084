#include "trainer/planner/plan_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <ostream>
#include <set>

#include "configs/yaml/config_json.h"
#include "trainer/outputs/html_text.h"

namespace equipoise {
namespace {

// A column of the table: a number of each plan, and whether a small or a large one is better.
struct Column {
  const char* title;
  const char* key;  // in JSON
  std::function<double(const PlanReport&)> value;
  enum class Better { kLess, kMore, kNeither } better;
};

using Better = Column::Better;

const std::vector<Column>& Columns() {
  static const std::vector<Column> kColumns = {
      {"ranks", "ranks", [](const PlanReport& r) { return static_cast<double>(r.ranks()); },
       Better::kNeither},
      {"step s", "step_s", [](const PlanReport& r) { return r.forecast.step_s.p50; },
       Better::kLess},
      {"tokens/s", "tokens_per_s", [](const PlanReport& r) { return r.forecast.tokens_per_s; },
       Better::kMore},
      {"samples/s", "samples_per_s", [](const PlanReport& r) { return r.samples_per_s(); },
       Better::kMore},
      {"MFU %", "mfu_percent", [](const PlanReport& r) { return 100 * r.forecast.mfu; },
       Better::kMore},
      {"peak GiB", "peak_gib",
       [](const PlanReport& r) {
         return static_cast<double>(r.best().peak_bytes()) / (int64_t{1} << 30);
       },
       Better::kLess},
      {"GB between nodes", "between_nodes_gb",
       [](const PlanReport& r) { return 1e-9 * r.forecast.traffic.between_nodes_bytes; },
       Better::kLess},
      {"GB in a node", "within_node_gb",
       [](const PlanReport& r) { return 1e-9 * r.forecast.traffic.within_node_bytes; },
       Better::kLess},
      {"GPU-days", "gpu_days", [](const PlanReport& r) { return r.gpu_days(); }, Better::kLess},
      {"hours/M samples", "hours_per_million_samples",
       [](const PlanReport& r) { return r.hours_per_million_samples(); }, Better::kLess},
      {"price/M samples", "cost_per_million_samples",
       [](const PlanReport& r) { return r.cost_per_million_samples(); }, Better::kLess},
  };
  return kColumns;
}

bool IsPrice(const Column& column) { return column.key == std::string("cost_per_million_samples"); }

// Prices compare where each is known, and all are the user's or all list prices.
bool PricesCompare(const std::vector<ComparedPlan>& planned) {
  const Cluster& first = planned.front().report.request.cluster;
  return std::all_of(planned.begin(), planned.end(), [&](const ComparedPlan& each) {
    const Cluster& cluster = each.report.request.cluster;
    return cluster.price_per_device_hour > 0 && cluster.lists_price == first.lists_price;
  });
}

// The best value of a column; nothing where none is better than another.
std::optional<double> BestOf(const Column& column, const std::vector<ComparedPlan>& planned) {
  if (column.better == Better::kNeither || (IsPrice(column) && !PricesCompare(planned))) {
    return std::nullopt;
  }
  std::vector<double> values;
  values.reserve(planned.size());
  for (const ComparedPlan& each : planned) values.push_back(column.value(each.report));
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (*least == *most) return std::nullopt;
  return column.better == Better::kLess ? *least : *most;
}

std::string Cell(const Column& column, const PlanReport& report, std::optional<double> best) {
  const double value = column.value(report);
  if (IsPrice(column) && value == 0) return "- ";
  return ReadableNumber(value) + (best && value == *best ? "*" : " ");
}

void PrintTable(const std::vector<ComparedPlan>& planned, std::ostream& out) {
  size_t name = 13;  // "configuration"
  for (const ComparedPlan& each : planned) name = std::max(name, each.path.size());
  out << fmt::format("{:<{}}", "configuration", name);
  std::vector<std::vector<std::string>> rows(planned.size());
  for (const Column& column : Columns()) {
    const std::optional<double> best = BestOf(column, planned);
    size_t width = std::string(column.title).size() + 1;
    for (size_t i = 0; i < planned.size(); ++i) {
      rows[i].push_back(Cell(column, planned[i].report, best));
      width = std::max(width, rows[i].back().size());
    }
    for (std::vector<std::string>& row : rows)
      row.back() = fmt::format("{:>{}}", row.back(), width);
    out << fmt::format("  {:>{}}", column.title + std::string(" "), width);
  }
  out << "  plan\n";
  for (size_t i = 0; i < planned.size(); ++i) {
    out << fmt::format("{:<{}}", planned[i].path, name);
    for (const std::string& cell : rows[i]) out << "  " << cell;
    out << "  " << DescribeMesh(planned[i].report.best().plan) << "\n";
  }
}

Json SectionsOfPlans(const RunConfig& config) {
  Json sections = ConfigToJson(config);
  for (const char* other : {"run", "checkpoint", "eval"}) sections.erase(other);
  return sections;
}

void Flatten(const std::string& key, const Json& value, std::vector<std::string>& lines) {
  if (!value.is_object()) {
    lines.push_back(key + '\n' + value.dump());
    return;
  }
  for (const auto& [name, item] : value.items()) {
    Flatten(key.empty() ? name : key + "." + name, item, lines);
  }
}

}  // namespace

std::vector<std::string> DifferingKeys(const RunConfig& a, const RunConfig& b) {
  std::vector<std::string> one, other;
  Flatten("", SectionsOfPlans(a), one);
  Flatten("", SectionsOfPlans(b), other);
  std::sort(one.begin(), one.end());
  std::sort(other.begin(), other.end());
  std::vector<std::string> lines;
  std::set_symmetric_difference(one.begin(), one.end(), other.begin(), other.end(),
                                std::back_inserter(lines));
  std::set<std::string> keys;
  for (const std::string& line : lines) keys.insert(line.substr(0, line.find('\n')));
  return {keys.begin(), keys.end()};
}

void PrintComparison(const std::vector<ComparedPlan>& planned, std::ostream& out) {
  PrintTable(planned, out);
  out << "* = the best; GB are sent by a rank in a step, as the mean over the ranks; GPU-days are "
         "those of train.steps\n";
  if (!PricesCompare(planned)) {
    out << "prices do not compare: a GPU hour's is not known for each, or only some are list "
           "prices in USD\n";
  }
  const RunConfig& first = planned.front().config;
  for (size_t i = 1; i < planned.size(); ++i) {
    const std::vector<std::string> keys = DifferingKeys(first, planned[i].config);
    const auto is_work = [](const std::string& key) {
      return key.starts_with("model.") || key.starts_with("data.");
    };
    const bool same_work = std::none_of(keys.begin(), keys.end(), is_work);
    out << planned[i].path << (keys.empty() ? " is as " : " differs from ") << planned.front().path
        << (keys.empty() ? "" : fmt::format(" in {}", fmt::join(keys, ", ")))
        << (same_work ? "" : ": another model or other data") << "\n";
  }
}

Json ComparisonJson(const std::vector<ComparedPlan>& planned) {
  Json rows = Json::array(), best = Json::object();
  for (const ComparedPlan& each : planned) {
    Json row = PlanToJson(each.report);
    row["plan"] = DescribeMesh(each.report.best().plan);
    row["differs_in"] = DifferingKeys(planned.front().config, each.config);
    rows.push_back(row);
  }
  for (const Column& column : Columns()) {
    const std::optional<double> value = BestOf(column, planned);
    if (!value) continue;
    Json paths = Json::array();
    for (const ComparedPlan& each : planned) {
      if (column.value(each.report) == *value) paths.push_back(each.path);
    }
    best[column.key] = paths;
  }
  return {{"configurations", rows}, {"best", best}};
}

}  // namespace equipoise
