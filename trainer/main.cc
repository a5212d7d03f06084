#include <fmt/format.h>

// The program: picks the subcommand, runs it, and is the only place that catches and that looks at
// the environment.

#include <c10/util/Exception.h>
#include <spdlog/spdlog.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/nearest.h"
#include "configs/base/shown_text.h"
#include "configs/yaml/config_place.h"
#include "parallel/comm/already_reported_error.h"
#include "parallel/comm/mpi_environment.h"
#include "trainer/common/collective_error.h"
#include "trainer/common/commands.h"
#include "trainer/common/logging.h"
#include "trainer/common/program_hash.h"
#include "trainer/common/stop_request.h"
#include "trainer/device/memory_stats.h"

namespace equipoise {
namespace {

// CLI11 explains a parse error in several lines; the contract is one.
std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

void PrintError(const MpiEnvironment& mpi, const std::string& message, bool with_rank) {
  const std::string prefix =
      with_rank && mpi.size() > 1 ? fmt::format("[rank {}] ", mpi.rank()) : "";
  std::fprintf(stderr, "%s%sequipoise: %s\n", LineStart().c_str(), prefix.c_str(),
               TerminalText(message).c_str());
}

// Ends the process after a failure. One that every rank sees alike is printed by rank 0 alone;
// where another rank met it and rank 0 does not come to tell, that rank prints it after all.
int Fail(MpiEnvironment& mpi, ExitCode code, const std::string& message, bool every_rank) {
  const bool prints = every_rank || mpi.rank() == 0;
  if (prints) PrintError(mpi, message, every_rank);
  if (mpi.size() > 1) {
    const bool for_all = !every_rank && mpi.rank() == 0;
    mpi.Abandon({static_cast<int>(code), message, for_all}, [&] {
      if (!prints) PrintError(mpi, message, /*with_rank=*/true);
    });
  }
  return static_cast<int>(code);
}

// Leaves a line in the log alone, unless the ranks that know more do not come to tell it.
int FailTold(MpiEnvironment& mpi, const AlreadyReportedError& error) {
  spdlog::warn("{}", error.what());
  if (mpi.size() > 1) {
    mpi.Abandon({static_cast<int>(error.code()), error.what()},
                [&] { PrintError(mpi, error.what(), /*with_rank=*/true); });
  }
  return static_cast<int>(error.code());
}

std::string JoinWords(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// What the user can change about a command line that does not parse.
std::string Explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::string what = FirstLine(error.what());
  const std::vector<std::string> rest = app.remaining(/*recurse=*/true);
  if (rest.empty()) return what;
  const bool chosen =
      !app.get_subcommands().empty() && !what.starts_with("A subcommand is required");
  if (chosen) {
    if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return what;
    return "not expected: " + ShownText(JoinWords(rest), 200) +
           "; a setting of the configuration is given as --set, such as --set train.steps=3";
  }
  std::vector<std::string> known;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(sub->get_name());
  const std::string near = NearestName(rest.front(), known);
  return "there is no subcommand '" + ShownText(rest.front(), 60) + "'" +
         (near.empty() ? "" : "; did you mean '" + near + "'?");
}

// Says where a value of the configuration stands that a check behind its reading refuses.
std::string Placed(const CLI::App& app, const UserError& error) {
  if (error.code() != ExitCode::kBadUsage || app.get_subcommands().empty()) return error.what();
  const CLI::App* command = app.get_subcommands().front();
  const auto values = [&](const char* name) {
    const CLI::Option* option = command->get_option_no_throw(name);
    return option == nullptr ? std::vector<std::string>() : option->results();
  };
  const std::vector<std::string> config = values("CONFIG");
  return config.empty() ? error.what() : WithPlace(error.what(), config.front(), values("--set"));
}

int ParseFailed(const CLI::App& app, const CLI::ParseError& error, MpiEnvironment& mpi) {
  if (error.get_exit_code() != 0) {
    return Fail(mpi, ExitCode::kBadUsage, Explain(app, error) + "; see --help",
                /*every_rank=*/false);
  }
  if (mpi.rank() == 0) app.exit(error);  // --help
  mpi.Close();
  return static_cast<int>(ExitCode::kDone);
}

// Settings that libraries read once, when they are loaded: the program sets those that the user has
// not set and starts itself again, which takes 0.2 s.
void SetUpLibraries(char** argv) {
  bool changed = false;
  const auto set = [&](const char* name, const char* value) {
    if (std::getenv(name) != nullptr) return;
    setenv(name, value, /*overwrite=*/1);
    changed = true;
  };
  // A compute thread that waits for work by spinning takes the core from whoever has work: beside
  // one busy process a step becomes up to 100 times slower.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) set("GOMP_SPINCOUNT", "0");
  // Compiled matrix products that are kept, most of a megabyte each. A step has about 50, in a few
  // numbers of rows; by default a thousand are kept.
  set("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128");
  // Read when a GPU is first used: no reason to start again.
  const auto for_gpus = [](const char* name, const char* value) {
    setenv(name, value, /*overwrite=*/0);
  };
  // Without it train.deterministic is refused by matrix products.
  for_gpus("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
  // Each direction of each pair of ranks has a stream. On the 8 hardware queues that CUDA has by
  // default two of them may share one, where a receive that waits for its peer holds up the send
  // that the peer waits for.
  for_gpus("CUDA_DEVICE_MAX_CONNECTIONS", "32");
  // A rank launches the operations of several communicators, in the same order on all ranks of
  // each; NCCL from 2.26 on keeps that order on the GPU too.
  for_gpus("NCCL_LAUNCH_ORDER_IMPLICIT", "1");
  if (changed) execv("/proc/self/exe", argv);
}

// Null, and told, where MPI does not start.
std::unique_ptr<MpiEnvironment> Connect() {
  try {
    return std::make_unique<MpiEnvironment>();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "equipoise: %s\n", error.what());
    return nullptr;
  }
}

int RunProgram(int argc, char** argv) {
  CountCpuMemory();
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its size limit is an error to report, as a full disk
  const std::unique_ptr<MpiEnvironment> connected = Connect();
  if (!connected) return static_cast<int>(ExitCode::kRunFailed);
  MpiEnvironment& mpi = *connected;
  SetUpLogging({mpi.rank(), mpi.size(), "", false});
  CLI::App app("Equipoise trains multimodal large language models.", "equipoise");
  app.require_subcommand(1);
  app.set_version_flag("--version", [] {
    return "equipoise, program " + ProgramHash() + ", LibTorch " TORCH_VERSION;
  });
  std::function<int()> run;
  AddTrainCommand(app, mpi, run);
  AddPlanCommand(app, mpi, run);
  AddDataCommand(app, mpi, run);
  AddCheckCommand(app, mpi, run);
  AddExportCommand(app, mpi, run);
  AddGenerateCommand(app, mpi, run);
  AddProfileCommand(app, mpi, run);

  try {
    app.parse(argc, argv);
    const int status = run();
    mpi.Close();
    return status;
  } catch (const CLI::ParseError& error) {
    return ParseFailed(app, error, mpi);
  } catch (const CollectiveRunError& error) {
    return Fail(mpi, error.code(), error.what(), /*every_rank=*/false);
  } catch (const AlreadyReportedError& error) {
    return FailTold(mpi, error);
  } catch (const UserError& error) {
    return Fail(mpi, error.code(), Placed(app, error), error.code() == ExitCode::kRunFailed);
  } catch (const c10::Error& error) {
    return Fail(mpi, ExitCode::kRunFailed, FirstLine(error.what_without_backtrace()), true);
  } catch (const std::exception& error) {
    return Fail(mpi, ExitCode::kRunFailed, FirstLine(error.what()), /*every_rank=*/true);
  }
}

// Whether all results have reached standard output, such as a file on a disk that may be full.
bool FlushResults() {
  std::cout.flush();
  return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
}

}  // namespace
}  // namespace equipoise

// What escapes is beyond telling, such as no memory for the list of options.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) {
  equipoise::StopRequest::HoldSignals();
  equipoise::SetUpLibraries(argv);
  int status = equipoise::RunProgram(argc, argv);
  if (!equipoise::FlushResults() && status == 0) {
    std::fputs("equipoise: standard output cannot be written to its end; is the disk full?\n",
               stderr);
    status = static_cast<int>(equipoise::ExitCode::kRunFailed);
  }
  // Without LibTorch's destructors: they take half as long as loading it.
  std::fflush(nullptr);
  std::_Exit(status);
}
