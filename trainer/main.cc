// The program: selects the subcommand and runs it. Only here are errors turned into messages and
// exit codes, and environment variables of libraries read and set.

#include <c10/util/Exception.h>
#include <fmt/format.h>
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
#include "data/videos/video_file.h"
#include "parallel/comm/already_reported_error.h"
#include "parallel/comm/mpi_environment.h"
#include "trainer/common/collective_error.h"
#include "trainer/common/commands.h"
#include "trainer/common/logging.h"
#include "trainer/common/program_hash.h"
#include "trainer/common/signal_thread.h"
#include "trainer/common/stop_request.h"
#include "trainer/device/memory_stats.h"

namespace equipoise {
namespace {

// CLI11 explains a parse error in several lines; an error of this program is one line.
std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

void PrintError(const MpiEnvironment& mpi, const std::string& message, bool with_rank) {
  const std::string prefix =
      with_rank && mpi.size() > 1 ? fmt::format("[rank {}] ", mpi.rank()) : "";
  std::fprintf(stderr, "%s%sequipoise: %s\n", LineStart().c_str(), prefix.c_str(),
               TerminalText(message).c_str());
}

// Ends the job after a failure. Without `every_rank` all ranks have the same failure, and only rank
// 0 prints it; another rank prints it only if rank 0 does not report in time.
int Fail(MpiEnvironment& mpi, ExitCode code, const std::string& message, bool every_rank) {
  const bool prints = every_rank || mpi.rank() == 0;
  if (prints) {
    PrintError(mpi, message, every_rank);
  } else {
    spdlog::warn("{}", message);  // in this rank's log alone
  }
  if (mpi.size() > 1) {
    const bool for_all = !every_rank && mpi.rank() == 0;
    mpi.Abandon({static_cast<int>(code), message, for_all}, [&] {
      if (!prints) PrintError(mpi, message, /*with_rank=*/true);
    });
  }
  return static_cast<int>(code);
}

// Ends the job after a failure that other ranks report: it is logged, and printed only if they do
// not report in time.
int FailReported(MpiEnvironment& mpi, const AlreadyReportedError& error) {
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

// What the user can change about a command line that cannot be parsed.
std::string Explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::string what = FirstLine(error.what());
  const std::vector<std::string> rest = app.remaining(/*recurse=*/true);
  if (rest.empty()) return what;
  const bool chosen =
      !app.get_subcommands().empty() && !what.starts_with("A subcommand is required");
  if (chosen) {
    if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return what;
    return fmt::format(
        "not expected: {}; a setting of the configuration is given as --set, such as --set "
        "train.steps=3",
        ShownText(JoinWords(rest), 200));
  }
  std::vector<std::string> known;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(sub->get_name());
  const std::string near = NearestName(rest.front(), known);
  const std::string advice = near.empty() ? "" : fmt::format("; did you mean '{}'?", near);
  return fmt::format("there is no subcommand '{}'{}", ShownText(rest.front(), 60), advice);
}

// Shows one value of options that take one each time that they are given, where CLI11 shows
// several.
void ShowSingleValues(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    for (CLI::Option* option : command->get_options([](const CLI::Option* each) {
           return each->get_expected_max() > 1 && !each->get_allow_extra_args();
         }))
      option->option_text("TEXT");
  }
}

// The message of an error, with the file and line of the setting that it is about, also when the
// setting was refused after the configuration had been read.
std::string LocatedMessage(const CLI::App& app, const UserError& error) {
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

// True where standard output is a terminal whose user wants colours (no-color.org).
bool ShowsColours() {
  const char* refused = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) == 1 && (refused == nullptr || *refused == '\0');
}

// Sets environment variables that libraries read once, when they are loaded, unless the user has
// set them, and executes the program again, which takes 0.2 s.
void SetUpLibraries(char** argv) {
  bool changed = false;
  const auto set = [&](const char* name, const char* value) {
    if (std::getenv(name) != nullptr) return;
    setenv(name, value, /*overwrite=*/1);
    changed = true;
  };
  // Idle OpenMP threads must not spin: with one other busy process on the machine, that makes a
  // step up to 100 times slower.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) set("GOMP_SPINCOUNT", "0");
  // Capacity of oneDNN's cache of compiled matrix products, most of which take a megabyte. A step
  // has about 50, each for a few numbers of rows; the default capacity is 1024.
  set("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128");
  // LibTorch's profiler (run.kernel_trace) writes to stderr that a machine without a GPU has none.
  setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0);
  // Read when a GPU is first used, so that the program need not be executed again.
  const auto for_gpus = [](const char* name, const char* value) {
    setenv(name, value, /*overwrite=*/0);
  };
  // Required for deterministic cuBLAS (train.deterministic).
  for_gpus("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
  // Each direction of each pair of ranks has a stream. With CUDA's default of 8 hardware queues,
  // two streams may share one, in which a receive that waits for its peer blocks the send for which
  // that peer waits.
  for_gpus("CUDA_DEVICE_MAX_CONNECTIONS", "32");
  // Packs differ in size: memory that is freed by one is to serve the next.
  if (std::getenv("PYTORCH_CUDA_ALLOC_CONF") == nullptr)
    for_gpus("PYTORCH_ALLOC_CONF", "expandable_segments:True");
  // A rank uses several communicators, and launches their operations in the same order on all ranks
  // of each; NCCL 2.26 and later then keep that order on the GPU.
  for_gpus("NCCL_LAUNCH_ORDER_IMPLICIT", "1");
  // A receive that waits for its sender holds a multiprocessor for each channel, by default up to
  // 32 of the 132 of an H100, and each pair of ranks takes some 12 MB for each channel.
  for_gpus("NCCL_MAX_P2P_NCHANNELS", "8");
  if (changed) execv("/proc/self/exe", argv);
}

// Starts MPI. Returns null, after printing the error, when it cannot be started.
std::unique_ptr<MpiEnvironment> Connect() {
  try {
    return std::make_unique<MpiEnvironment>();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "equipoise: %s\n", error.what());
    return nullptr;
  }
}

int RunProgram(int argc, char** argv) {
  TakeSignalsOnOwnThread();
  CountCpuMemory();
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond its size limit is reported like a full disk
  int number = 0;
  if (const int together = MpiEnvironment::StrangersTogether(&number); together > 0) {
    if (number == 0) {
      std::fprintf(stderr,
                   "equipoise: %d processes were started, but not by Open MPI's mpirun or by Slurm "
                   "with PMIx, so that each would run alone; use scripts/launch, or srun "
                   "--mpi=pmix\n",
                   together);
    }
    return static_cast<int>(ExitCode::kBadUsage);
  }
  const std::unique_ptr<MpiEnvironment> connected = Connect();
  if (!connected) return static_cast<int>(ExitCode::kRunFailed);
  MpiEnvironment& mpi = *connected;
  // Over TCP, Open MPI may write to a rank that has already ended well.
  if (mpi.size() > 1) std::signal(SIGPIPE, SIG_IGN);
  SetUpLogging({mpi.rank(), mpi.size(), "", false});
  CLI::App app("Equipoise trains multimodal large language models.", "equipoise");
  app.require_subcommand(1);
  app.set_version_flag("--version", [] {
    return fmt::format("equipoise, program {}, LibTorch {}{}", ProgramHash(), TORCH_VERSION,
                       OpensVideos() ? ", FFmpeg" : "");
  });
  std::function<int()> run;
  AddTrainCommand(app, mpi, run);
  AddPlanCommand(app, mpi, run);
  AddDataCommand(app, mpi, ShowsColours(), run);
  AddCheckCommand(app, mpi, run);
  AddExportCommand(app, mpi, run);
  AddGenerateCommand(app, mpi, run);
  AddProfileCommand(app, mpi, run);
  AddDoctorCommand(app, mpi, run);
  ShowSingleValues(app);

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
    return FailReported(mpi, error);
  } catch (const UserError& error) {
    return Fail(mpi, error.code(), LocatedMessage(app, error),
                error.code() == ExitCode::kRunFailed);
  } catch (const c10::Error& error) {
    return Fail(mpi, ExitCode::kRunFailed, FirstLine(error.what_without_backtrace()), true);
  } catch (const std::exception& error) {
    return Fail(mpi, ExitCode::kRunFailed, FirstLine(error.what()), /*every_rank=*/true);
  }
}

// Flushes standard output; false if something could not be written, such as on a full disk.
bool FlushResults() {
  std::cout.flush();
  return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
}

}  // namespace
}  // namespace equipoise

// Only errors that cannot be reported escape, such as no memory for the options.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) {
  equipoise::StopRequest::BlockSignals();
  equipoise::SetUpLibraries(argv);
  int status = equipoise::RunProgram(argc, argv);
  if (!equipoise::FlushResults() && status == 0) {
    std::fputs("equipoise: standard output cannot be written to its end; is the disk full?\n",
               stderr);
    status = static_cast<int>(equipoise::ExitCode::kRunFailed);
  }
  // Skips LibTorch's static destructors, which take half as long as loading the library.
  std::fflush(nullptr);
  std::_Exit(status);
}
