// The program: picks the subcommand, runs it, and is the only place that catches.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>

#include "configs/error.h"
#include "parallel/comm/mpi_environment.h"
#include "trainer/commands.h"
#include "trainer/launch.h"

namespace equipoise {
namespace {

// CLI11 explains a parse error in several lines; the contract is one.
std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

void PrintError(const Launch& launch, const std::string& message, bool every_rank) {
  if (launch.rank != 0 && !every_rank) return;
  const std::string prefix =
      every_rank && launch.size > 1 ? "[rank " + std::to_string(launch.rank) + "] " : "";
  std::fprintf(stderr, "%sequipoise: %s\n", prefix.c_str(), message.c_str());
}

int ParseFailed(const CLI::App& app, const CLI::ParseError& error, const Launch& launch) {
  if (error.get_exit_code() == 0) {  // --help
    if (launch.rank == 0) app.exit(error);
    return static_cast<int>(ExitCode::kDone);
  }
  PrintError(launch, FirstLine(error.what()) + "; see --help", /*every_rank=*/false);
  return static_cast<int>(ExitCode::kBadUsage);
}

int RunProgram(int argc, char** argv) {
  MpiEnvironment mpi;
  Launch launch;
  launch.rank = mpi.rank();
  launch.size = mpi.size();
  CLI::App app("Equipoise trains multimodal large language models.", "equipoise");
  app.require_subcommand(1);
  std::function<int()> run;
  AddDataCommand(app, launch, run);
  AddCheckCommand(app, mpi, run);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ParseFailed(app, error, launch);
  }
  try {
    const int status = run();
    mpi.Close();
    return status;
  } catch (const UserError& error) {
    PrintError(launch, error.what(), error.code() == ExitCode::kRunFailed);
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    PrintError(launch, FirstLine(error.what()), /*every_rank=*/true);
    return static_cast<int>(ExitCode::kRunFailed);
  }
}

}  // namespace
}  // namespace equipoise

int main(int argc, char** argv) { return equipoise::RunProgram(argc, argv); }
