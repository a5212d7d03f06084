#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "balance/costs/profile.h"
#include "configs/base/error.h"
#include "configs/yaml/overrides.h"
#include "models/families/families.h"
#include "parallel/comm/mpi_environment.h"
#include "trainer/common/commands.h"
#include "trainer/profile/profile_run.h"
#include "trainer/run/set_up_run.h"
#include "trainer/settings/model_section.h"
#include "trainer/settings/source_lists.h"

namespace equipoise {
namespace {

struct Arguments {
  std::string config;
  std::string out = "profile.json";
  int sweeps = 5;
  std::vector<std::string> set;
};

ProfileGrid GridOf(const RunConfig& config, const ModelConfig& model) {
  ProfileGrid grid;
  grid.max_tokens = config.data.max_tokens;
  const ImageSpec images = ImageSpecOf(model);
  grid.max_tiles =
      images.takes_pictures() ? std::max<int64_t>(1, grid.max_tokens / images.tokens_per_tile) : 0;
  return grid;
}

void PrintRow(const LayerMeasurement& m) {
  constexpr double kMiB = 1 << 20;
  std::printf("%-16s %6d %7lld %7lld %11.0f %7lld %10.2f %11.2f %8.2f %10.2f %9.2f\n",
              m.layer_kind.c_str(), m.tensor, static_cast<long long>(m.load.patches),
              static_cast<long long>(m.load.tokens), m.load.token_pairs,
              static_cast<long long>(m.load.targets), 1e3 * m.forward_s, 1e3 * m.backward_s,
              1e3 * m.input_gradient_s, static_cast<double>(m.kept_bytes[0]) / kMiB,
              static_cast<double>(m.work_bytes) / kMiB);
  std::fflush(stdout);
}

void PrintOptimizerAndLinks(const Profile& profile) {
  std::printf("optimizer %.3f ns a parameter\n", 1e9 * profile.optimizer_s_per_parameter);
  const auto link = [](const char* name, const LinkModel& model) {
    if (model.bytes_per_s > 0)
      std::printf("%s %.1f us + %.2f GB/s\n", name, 1e6 * model.latency_s,
                  1e-9 * model.bytes_per_s);
  };
  link("point to point", profile.point_to_point);
  link("all-reduce of two ranks", profile.all_reduce);
  if (profile.host_link_bytes_per_s > 0)
    std::printf("a GPU to host memory or back %.2f GB/s\n", 1e-9 * profile.host_link_bytes_per_s);
}

// Checked before measurements that take minutes.
void RequireFolder(const std::string& out) {
  const std::filesystem::path folder = std::filesystem::path(out).parent_path();
  if (folder.empty() || std::filesystem::is_directory(folder)) return;
  throw ConfigError(fmt::format("--out {}: there is no folder {}; make it or choose another", out,
                                folder.string()));
}

int RunProfile(const Arguments& arguments, MpiEnvironment& mpi) {
  RequireFolder(arguments.out);
  RequireOtherFile("--out", arguments.out, {arguments.config});
  RunConfig config = ReadRunConfig(arguments.config, ParseOverrides(arguments.set));
  ModelConfig model = ModelConfigOf(config);
  model.unfreeze.clear();  // what a frozen layer costs follows from the times of a trained one
  const RunSetup setup = SetUpRun(config, mpi);
  const MeasureOptions options{ThisDevice(setup.precision, setup.device), setup.precision,
                               arguments.sweeps, setup.device};
  const bool prints = mpi.rank() == 0;
  const auto progress = [&](int sweep) {
    if (prints) spdlog::info("sweep {} of {}", sweep + 1, options.sweeps);
  };
  const Profile profile =
      MeasureProfile(model, GridOf(config, model), options, *setup.world, progress);
  if (!prints) return static_cast<int>(ExitCode::kDone);
  std::printf("%-16s %6s %7s %7s %11s %7s %10s %11s %8s %10s %9s\n", "layer", "tensor", "patches",
              "tokens", "pairs", "targets", "forward ms", "backward ms", "input ms", "kept MiB",
              "work MiB");
  for (const LayerMeasurement& row : profile.layers) PrintRow(row);
  PrintOptimizerAndLinks(profile);
  WriteProfile(arguments.out, profile);
  spdlog::info("profile of {} ({}, {} threads): {}", profile.device, profile.precision,
               profile.threads, arguments.out);
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void AddProfileCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("profile", "Measures the model's layers on this device, for the planner");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("CONFIG", arguments->config, "YAML file of a run")->required();
  command->add_option("--out", arguments->out, "file for the measurements (JSON)")
      ->capture_default_str();
  command
      ->add_option("--sweeps", arguments->sweeps, "over all that is measured; a time is their mean")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--set", arguments->set, "a.b=c: one setting in place of the file's")
      ->allow_extra_args(false);
  command->footer(
      "Measures one layer of each kind, random weights, rows of up to data.max_tokens tokens.\n"
      "Under mpirun with two ranks or more the links between ranks too, and layers as tensor\n"
      "ranks share them.\n\n"
      "Example:\n  mpirun -n 2 equipoise profile configs/quickstart.yaml --out profile.json");
  command->callback(
      [arguments, &mpi, &run] { run = [arguments, &mpi] { return RunProfile(*arguments, mpi); }; });
}

}  // namespace equipoise
