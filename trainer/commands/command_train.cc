#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "configs/yaml/overrides.h"
#include "configs/yaml/yaml_writer.h"
#include "parallel/comm/mpi_environment.h"
#include "trainer/common/commands.h"
#include "trainer/loop/run_inputs.h"
#include "trainer/loop/trainer.h"
#include "trainer/settings/source_lists.h"

namespace equipoise {
namespace {

struct Arguments {
  std::string config;
  std::string resume = "auto";
  std::vector<std::string> set;
  bool dry_run = false;
};

int Train(const Arguments& arguments, MpiEnvironment& mpi) {
  TrainOptions options;
  options.config = ReadRunConfig(arguments.config, ParseOverrides(arguments.set));
  if (arguments.resume == "none") {
    options.resume = Resume::kNone;
  } else if (arguments.resume != "auto") {
    options.resume = Resume::kFrom;
    options.resume_from = arguments.resume;
  }
  if (arguments.dry_run) {
    const PlanReport report = PlanWithoutTraining(options, mpi);
    if (mpi.rank() == 0) PrintPlan(report, /*explain=*/false, std::cout);
    return static_cast<int>(ExitCode::kDone);
  }
  Trainer trainer(options, mpi);
  return static_cast<int>(trainer.Run());
}

}  // namespace

void AddTrainCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand("train", "Trains the model that a YAML file describes");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("CONFIG", arguments->config, "YAML file")->required();
  command
      ->add_option(
          "--resume", arguments->resume,
          "auto: go on from the run folder's newest good checkpoint; none: start anew, but "
          "refuse a run folder that holds one; or a checkpoint folder")
      ->capture_default_str();
  command->add_option("--set", arguments->set, "a.b=c: one setting in place of the file's")
      ->allow_extra_args(false);
  command->add_flag(
      "--dry-run", arguments->dry_run,
      "check all that training would refuse before its first step, and print the plan "
      "for as many ranks as were started; train nothing");
  command->footer(fmt::format(
      "Example:\n  mpirun -n 2 equipoise train configs/quickstart.yaml --set train.steps=100\n\n"
      "Settings:\n{}",
      HelpText(RunConfig())));
  command->callback(
      [arguments, &mpi, &run] { run = [arguments, &mpi] { return Train(*arguments, mpi); }; });
}

}  // namespace equipoise
