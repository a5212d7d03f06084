#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "configs/yaml/overrides.h"
#include "configs/yaml/yaml_writer.h"
#include "parallel/comm/mpi_environment.h"
#include "parallel/comm/processors.h"
#include "trainer/common/commands.h"
#include "trainer/common/logging.h"
#include "trainer/device/this_gpu.h"
#include "trainer/loop/first_weights.h"
#include "trainer/loop/trial_run.h"
#include "trainer/planner/plan_compare.h"
#include "trainer/planner/plan_html.h"
#include "trainer/planner/plan_run.h"
#include "trainer/planner/plan_trace.h"
#include "trainer/settings/source_lists.h"

namespace equipoise {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> set;
  int ranks = 0, trials = 0;
  std::string json, html, trace;
  bool explain = false;
  std::vector<std::string> compare;  // other configurations
};

// A configuration of this machine's GPUs, where it names no others.
RunConfig Read(const std::string& path, const Arguments& arguments, MpiEnvironment& mpi) {
  RunConfig config = ReadRunConfig(path, ParseOverrides(arguments.set));
  if (const auto gpu = ThisGpu(config.train.device)) {
    const std::string line = UseGpu(*gpu, config.cluster);
    if (!line.empty() && mpi.rank() == 0) spdlog::info("{}", line);
  }
  return config;
}

PlanTarget TargetOf(const Arguments& arguments) {
  const auto threads = static_cast<int>(ProcessorShare(/*sharing=*/1, /*processes=*/1));
  return {.ranks = arguments.ranks, .threads = threads};
}

// One of several configurations with its plan; an error says which one it is of.
ComparedPlan PlanOf(const std::string& path, const Arguments& arguments, MpiEnvironment& mpi) {
  const RunConfig config = Read(path, arguments, mpi);
  PlanReport report;
  try {
    CheckPlannedWeights(config);
    report = PlanRun(config, TargetOf(arguments));
  } catch (const UserError& error) {
    throw UserError(error.code(), path + ": " + error.what());
  }
  report.config = path;
  report.settings = WriteConfig(config);
  return {path, config, report};
}

int ComparePlans(const Arguments& arguments, MpiEnvironment& mpi) {
  if (arguments.trials > 0 || arguments.explain || !arguments.html.empty() ||
      !arguments.trace.empty()) {
    throw ConfigError(
        "--compare: goes with --set, --ranks and --json alone; plan one configuration for --trial, "
        "--explain, --html and --trace");
  }
  std::vector<ComparedPlan> planned = {PlanOf(arguments.config, arguments, mpi)};
  for (const std::string& path : arguments.compare) planned.push_back(PlanOf(path, arguments, mpi));
  PrintComparison(planned, std::cout);
  if (!arguments.json.empty())
    WriteResult(arguments.json,
                ComparisonJson(planned).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  return static_cast<int>(ExitCode::kDone);
}

int RunPlan(const Arguments& arguments, MpiEnvironment& mpi) {
  std::vector<std::string> read = arguments.compare;
  read.push_back(arguments.config);
  for (const auto& [option, path] : {std::pair("--json", arguments.json),
                                     {"--html", arguments.html},
                                     {"--trace", arguments.trace}})
    RequireOtherFile(option, path, read);
  if (!arguments.compare.empty()) return ComparePlans(arguments, mpi);
  const RunConfig config = Read(arguments.config, arguments, mpi);
  if (arguments.trials == 0) CheckPlannedWeights(config);  // those of a trial are read
  PlanReport report = arguments.trials > 0
                          ? PlanByTrial(config, arguments.ranks, arguments.trials, mpi)
                          : PlanRun(config, TargetOf(arguments));
  if (mpi.rank() != 0) return static_cast<int>(ExitCode::kDone);
  report.config = arguments.config;
  report.settings = WriteConfig(config);
  PrintPlan(report, arguments.explain, std::cout);
  if (!arguments.json.empty())
    WriteResult(arguments.json,
                PlanToJson(report).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  if (!arguments.html.empty()) WriteResult(arguments.html, RenderPlan(report));
  if (!arguments.trace.empty()) WriteResult(arguments.trace, PlanTrace(report));
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void AddPlanCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("plan", "Searches and prints the balanced plan of a run; starts nothing");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("CONFIG", arguments->config, "YAML file")->required();
  command->add_option("--set", arguments->set, "a.b=c: one setting in place of the file's")
      ->allow_extra_args(false);
  command
      ->add_option("--ranks", arguments->ranks, "ranks to plan for; default: the cluster's devices")
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option(
          "--trial", arguments->trials,
          "run that many of the best plans for a few real steps each and take the fastest; "
          "under mpirun with the plan's ranks")
      ->check(CLI::Range(1, kMostTrials));
  command
      ->add_option("--compare", arguments->compare,
                   "another YAML file: plan both and print a table, a row for each")
      ->allow_extra_args(false);
  command->add_option("--json", arguments->json, "file for the plan as JSON");
  command->add_option("--html", arguments->html, "file for the plan as an HTML page");
  command->add_option("--trace", arguments->trace,
                      "file for the predicted step, for chrome://tracing and Perfetto");
  command->add_flag("--explain", arguments->explain, "say why the other plans were not taken");
  command->footer(
      "Examples:\n  equipoise plan configs/internvl2_26b_sft.yaml --ranks 64 --explain\n"
      "  equipoise plan a.yaml --compare b.yaml --compare c.yaml --json table.json\n"
      "  mpirun -n 2 equipoise plan configs/quickstart.yaml --trial 3");
  command->callback([arguments, &mpi, &run] {
    run = [arguments, &mpi] {
      if (arguments->trials == 0) RequireOneProcess(mpi, "plan without --trial");
      SetUpLogging({mpi.rank(), mpi.size(), "", false});
      return RunPlan(*arguments, mpi);
    };
  });
}

}  // namespace equipoise
