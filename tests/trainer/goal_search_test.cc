#include "trainer/planner/goal_search.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "configs/yaml/yaml_reader.h"
#include "tests/trainer/scratch_folder.h"
#include "trainer/planner/plan_compare.h"

namespace equipoise {
namespace {

using Clock = std::chrono::system_clock;

// 2030-01-01T00:00 UTC.
Clock::time_point NewYear() {
  return std::chrono::sys_days(std::chrono::year_month_day{
      std::chrono::year(2030), std::chrono::month(1), std::chrono::day(1)});
}

double Hours(const std::string& deadline) {
  GoalSection section;
  section.deadline = deadline;
  return GoalOf(section, NewYear()).deadline_h;
}

TEST_CASE("a deadline is hours or a date", "[goal_search][cpu]") {
  CHECK(Hours("") == 0);
  CHECK(Hours("20") == 20);
  CHECK(Hours("0.5") == 0.5);
  CHECK(Hours("20h") == 20);
  CHECK(Hours("20 h") == 20);
  CHECK(Hours("2030-01-03") == Approx(48));
  CHECK(Hours("2030-01-01T18:30") == Approx(18.5));
  for (const char* bad :
       {"soon", "0", "-3", "20 days", "20 hours", "inf", "nan", "2030-13-01", "2030-02-30",
        "2030-01-02T25:00", "2030-01-02 18", "2029-12-31", "2030-01-01"}) {
    INFO(bad);
    try {
      Hours(bad);
      CHECK(false);
    } catch (const ConfigError& error) {
      CHECK(std::string(error.what()).find("goal.deadline: ") == 0);
    }
  }
}

TEST_CASE("a date that is over ends no run that is started", "[goal_search][cpu]") {
  GoalSection section;
  section.deadline = "2029-12-31";
  CHECK_THROWS_AS(GoalOf(section, NewYear()), ConfigError);
  CHECK(GoalOf(section, NewYear(), /*started=*/true).deadline_h == 0);
  section.deadline = "2030-01-03";
  CHECK(GoalOf(section, NewYear(), /*started=*/true).deadline_h == Approx(48));
  section.deadline = "soon";
  CHECK_THROWS_AS(GoalOf(section, NewYear(), /*started=*/true), ConfigError);
}

// A small model on records that are quickly packed, planned for nodes of 4.
RunConfig Config(const std::vector<std::string>& set) {
  static const ScratchFolder kFolder;
  static const std::string kCosts = kFolder.Path("costs.jsonl");
  if (!std::filesystem::exists(kCosts)) {
    std::ostringstream lines;
    for (int i = 0; i < 2000; ++i) {
      const int tiles = i * 7919 % 6, tokens = 100 + 256 * tiles + i * 6007 % 600;
      lines << R"({"vit_num":)" << tiles << R"(,"token_num":)" << tokens << "}\n";
    }
    WriteText(kCosts, lines.str());
  }
  std::vector<Override> overrides;
  for (const std::string& text :
       {"data.costs=" + kCosts, std::string("model.preset=internvl2-2b"),
        std::string("train.global_batch=64"), std::string("cluster.gpus_per_node=4"),
        std::string("cluster.nodes=1")}) {
    overrides.push_back(ParseOverride(text));
  }
  for (const std::string& text : set) overrides.push_back(ParseOverride(text));
  RunConfig config;
  ReadConfig("configs/internvl2_26b_sft.yaml", overrides, config);
  return config;
}

std::string ErrorOf(const std::vector<std::string>& set, ExitCode code,
                    const PlanTarget& target = {}) {
  try {
    PlanRun(Config(set), target);
  } catch (const UserError& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "";
}

std::string Setting(const std::string& key, double value) {
  std::ostringstream text;
  text.precision(17);
  text << key << "=" << value;
  return text.str();
}

TEST_CASE("the number of GPUs is chosen by the goal", "[goal_search][cpu]") {
  const PlanReport all = PlanRun(Config({"goal.max_gpus=12"}), {});
  const std::vector<SizedPlan>& sizes = all.goal.sizes;
  std::vector<int> gpus;
  for (const SizedPlan& each : sizes) gpus.push_back(each.figures.gpus);
  for (const SizeLeftOut& each : all.goal.left_out) gpus.push_back(each.gpus);
  std::sort(gpus.begin(), gpus.end());
  CHECK(gpus == std::vector<int>{1, 2, 4, 8, 12});
  REQUIRE(sizes.size() >= 3);
  // Without limits the shortest; what is reported is what was chosen.
  for (const SizedPlan& each : sizes)
    CHECK(each.figures.hours >= sizes[all.goal.chosen].figures.hours);
  const RunFigures& chosen = sizes[all.goal.chosen].figures;
  CHECK(all.best().plan == sizes[all.goal.chosen].plan);
  CHECK(all.best().plan.num_ranks() == chosen.gpus);
  CHECK(all.cost() == Approx(chosen.cost));
  CHECK(all.samples_per_s() == Approx(chosen.samples_per_s));
  CHECK(all.forecast.traffic.total() == chosen.traffic.total());

  // Each limit, set between two sizes, takes the size that the rule names.
  const RunFigures &few = sizes[0].figures, &more = sizes[1].figures;
  REQUIRE(few.hours > more.hours);
  const std::string between = Setting("goal.deadline", (few.hours + more.hours) / 2);
  const PlanReport late = PlanRun(Config({"goal.max_gpus=12", between}), {});
  const RunFigures& in_time = late.goal.sizes[late.goal.chosen].figures;
  CHECK(in_time.hours <= (few.hours + more.hours) / 2);
  for (const SizedPlan& each : sizes) {
    if (each.figures.hours <= (few.hours + more.hours) / 2) {
      CHECK(in_time.gpu_hours() <= each.figures.gpu_hours());
    }
  }
  double least = chosen.cost;
  for (const SizedPlan& each : sizes) least = std::min(least, each.figures.cost);
  const PlanReport cheap = PlanRun(
      Config({"goal.max_gpus=12", Setting("goal.budget", least), "goal.objective=throughput"}), {});
  CHECK(cheap.cost() == Approx(least));

  const std::string miss =
      ErrorOf({"goal.max_gpus=12", Setting("goal.deadline", chosen.hours / 4)}, ExitCode::kNoPlan);
  CHECK(miss.find("goal.deadline of ") == 0);
  CHECK(miss.find("on 12 GPUs; allow ") != std::string::npos);
  CHECK(miss.find("or goal.max_gpus of ") != std::string::npos);
}

TEST_CASE("a goal holds for a given number of ranks too", "[goal_search][cpu]") {
  const PlanReport plain = PlanRun(Config({}), {4});
  CHECK(plain.goal.sizes.empty());
  const double hours = 559 * plain.forecast.step_s.p50 / 3600;
  const std::string half = Setting("goal.deadline", hours / 2);
  CHECK(PlanRun(Config({Setting("goal.deadline", 2 * hours)}), {4}).goal.miss.empty());
  const std::string miss = ErrorOf({half}, ExitCode::kNoPlan, {4});
  CHECK(miss.find("on 4 GPUs; allow ") != std::string::npos);
  CHECK(miss.find(", or --ranks ") != std::string::npos);
  // Ranks that are started already get their plan, and are told.
  PlanTarget started = {4};
  started.started = true;
  const PlanReport warned = PlanRun(Config({half, "goal.max_gpus=64"}), started);
  CHECK(warned.best().plan == plain.best().plan);
  CHECK(warned.goal.miss.find("goal.deadline of ") == 0);
  CHECK(ErrorOf({"goal.max_gpus=2"}, ExitCode::kNoPlan, {4}) ==
        "goal.max_gpus of 2: the plan is for 4 GPUs; allow 4");
  CHECK(ErrorOf({"goal.budget=10", "cluster.preset=a800", "cluster.price_per_gpu_hour=0"},
                ExitCode::kBadUsage, {4})
            .find("goal.budget: no price of a GPU hour is known") == 0);
}

TEST_CASE("a started run with a date is told of the plan that it has", "[goal_search][cpu]") {
  PlanTarget started = {8};
  started.started = true;
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> set = {"cluster.nodes=2", "train.steps=1000000"};
    set.insert(set.end(), more.begin(), more.end());
    return PlanRun(Config(set), started);
  };
  const std::string quiet = "goal.objective=traffic";
  const PlanReport given = run({quiet});
  const double hours = 1e6 / 3600 * given.forecast.step_s.p50;
  const double fastest = 1e6 / 3600 * run({}).forecast.step_s.p50;
  const auto date = [](double left) {
    const auto at = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double, std::ratio<3600>>(left));
    const std::time_t seconds = Clock::to_time_t(at);
    std::ostringstream text;
    text << std::put_time(std::gmtime(&seconds), "goal.deadline=%Y-%m-%dT%H:%M");
    return text.str();
  };
  REQUIRE(hours - fastest > 0.1);  // of a plan that the date would allow
  const PlanReport late = run({quiet, date((hours + fastest) / 2)});
  CHECK(late.best().plan == given.best().plan);
  CHECK(late.goal.miss.find("goal.deadline of ") == 0);
  CHECK(late.goal.miss.find(": the plan takes ") != std::string::npos);
}

TEST_CASE("the plan of the fewest bytes is one of the fastest", "[goal_search][cpu]") {
  const PlanReport fast = PlanRun(Config({"cluster.nodes=2"}), {});
  const PlanReport quiet = PlanRun(Config({"cluster.nodes=2", "goal.objective=traffic"}), {});
  CHECK(quiet.forecast.traffic.between_nodes_bytes <= fast.forecast.traffic.between_nodes_bytes);
  CHECK(quiet.forecast.step_s.p50 >= 0.999 * fast.forecast.step_s.p50);
}

ComparedPlan Planned(const std::string& path, const std::vector<std::string>& set) {
  ComparedPlan planned = {path, Config(set), {}};
  planned.report = PlanRun(planned.config, {});
  return planned;
}

TEST_CASE("configurations are compared in a row each", "[goal_search][cpu]") {
  const std::vector<ComparedPlan> planned = {
      Planned("a.yaml", {}), Planned("b.yaml", {"cluster.nodes=2", "parallel.tensor=2"}),
      Planned("c.yaml", {"model.freeze=[vision]", "run.dir=elsewhere"})};
  CHECK(DifferingKeys(planned[0].config, planned[1].config) ==
        std::vector<std::string>{"cluster.nodes", "parallel.tensor"});
  CHECK(DifferingKeys(planned[0].config, planned[0].config).empty());
  std::ostringstream out;
  PrintComparison(planned, out);
  std::vector<std::string> lines;
  std::istringstream text(out.str());
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  REQUIRE(lines.size() == 7);
  CHECK(lines[1].find("a.yaml") == 0);
  CHECK(lines[2].find("b.yaml") == 0);
  CHECK(lines[2].find(DescribeMesh(planned[1].report.best().plan)) != std::string::npos);
  CHECK(lines[5] == "b.yaml differs from a.yaml in cluster.nodes, parallel.tensor");
  CHECK(lines[6] == "c.yaml differs from a.yaml in model.freeze: another model or other data");

  const Json json = ComparisonJson(planned);
  REQUIRE(json["configurations"].size() == 3);
  const Json& second = json["configurations"][1];
  CHECK(second["traffic"]["between_nodes_bytes"] > 0);
  CHECK(json["configurations"][0]["traffic"]["between_nodes_bytes"] == 0);
  CHECK(second["per_million_samples"]["cost"].get<double>() ==
        Approx(second["per_million_samples"]["hours"].get<double>() * 8 * 2));
  CHECK(second["per_million_samples"]["hours"].get<double>() ==
        Approx(1e6 / second["samples_per_s"].get<double>() / 3600));
  CHECK(second["differs_in"] == Json({"cluster.nodes", "parallel.tensor"}));
  // The marks are those of the numbers.
  const Json& best = json["best"]["step_s"];
  REQUIRE(best.size() == 1);
  for (const Json& each : json["configurations"]) {
    CHECK(json["configurations"][best[0] == "a.yaml"   ? 0
                                 : best[0] == "b.yaml" ? 1
                                                       : 2]["step_s"]["p50"] <=
          each["step_s"]["p50"]);
  }
  // A list price in USD beside a price of the user's: no best.
  std::vector<ComparedPlan> prices = {planned[0], planned[0]};
  prices[1].report.request.cluster.lists_price = true;
  CHECK_FALSE(ComparisonJson(prices)["best"].contains("cost_per_million_samples"));
  CHECK(ComparisonJson(planned)["best"].contains("cost_per_million_samples"));
}

}  // namespace
}  // namespace equipoise
