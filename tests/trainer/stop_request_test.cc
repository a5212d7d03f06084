#include "trainer/common/stop_request.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "configs/base/error.h"
#include "parallel/comm/single_communicator.h"
#include "tests/parallel/run_ranks.h"
#include "tests/trainer/scratch_folder.h"

namespace equipoise {
namespace {

void Pause(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST_CASE("SIGUSR1, SIGTERM and a first Ctrl-C are requests to stop", "[stop][cpu]") {
  const int signal = GENERATE(SIGUSR1, SIGTERM, SIGINT);
  const StopRequest request;
  CHECK_FALSE(request.Requested());
  raise(signal);
  CHECK(request.Requested());
  CHECK_FALSE(request.Ending());
}

TEST_CASE("SIGTERM soon after SIGCONT means that mpirun ends the job", "[stop][cpu]") {
  const int pause_ms = GENERATE(0, 250);  // mpirun waits a quarter of a second
  setenv("OMPI_COMM_WORLD_SIZE", "1", /*overwrite=*/1);
  const StopRequest request;
  raise(SIGCONT);
  Pause(pause_ms);
  raise(SIGTERM);
  CHECK(request.Ending());
  CHECK_FALSE(request.Requested());
  SingleCommunicator world;
  CHECK_THROWS_AS(request.AgreeToStop(world), RunError);
  unsetenv("OMPI_COMM_WORLD_SIZE");
}

TEST_CASE("without mpirun SIGTERM beside SIGCONT (timeout, systemd, Slurm) is a request",
          "[stop][cpu]") {
  unsetenv("OMPI_COMM_WORLD_SIZE");
  const bool first = GENERATE(true, false);
  const StopRequest request;
  if (first) raise(SIGCONT);
  raise(SIGTERM);
  if (!first) raise(SIGCONT);
  CHECK(request.Requested());
  CHECK_FALSE(request.Ending());
}

TEST_CASE("SIGTERM long after SIGCONT (fg, a debugger) is a request", "[stop][cpu]") {
  const StopRequest request;
  raise(SIGCONT);
  CHECK_FALSE(request.Ending());
  Pause(1100);
  raise(SIGTERM);
  CHECK(request.Requested());
  CHECK_FALSE(request.Ending());
}

TEST_CASE("a request does not outlive its object, and handlers are given back", "[stop][cpu]") {
  const auto handler = [] {
    struct sigaction action {};
    sigaction(SIGUSR1, nullptr, &action);
    return action.sa_handler;
  };
  const auto before = handler();
  {
    const StopRequest request;
    raise(SIGUSR1);
    CHECK(handler() != before);
  }
  CHECK(handler() == before);
  CHECK_FALSE(StopRequest().Requested());
}

TEST_CASE("a SIGUSR1 that comes before its object is kept for it", "[stop][cpu]") {
  const pid_t child = fork();
  if (child == 0) {
    StopRequest::BlockSignals();
    raise(SIGUSR1);
    bool kept = false;
    {
      const StopRequest request;
      kept = request.Requested() && !request.Ending();
    }
    raise(SIGUSR1);  // after it: no harm either
    _exit(kept ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("the second Ctrl-C ends the process", "[stop][cpu]") {
  const pid_t child = fork();
  if (child == 0) {
    const StopRequest request;
    raise(SIGINT);
    raise(SIGINT);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGINT);
}

TEST_CASE("the stop file asks rank 0, and all ranks agree", "[stop][cpu]") {
  const ScratchFolder scratch;
  WriteText(scratch.Path("stop"), "");
  StopRequest leader;
  const StopRequest other;
  leader.WatchFile(scratch.path());
  CHECK_FALSE(leader.Requested());  // it was left from before
  const auto agree = [&] {
    std::vector<int> answers(4);
    RunRanks(4, [&](Communicator& world) {
      const StopRequest& mine = world.rank() == 0 ? leader : other;
      answers[static_cast<size_t>(world.rank())] = mine.AgreeToStop(world) ? 1 : 0;
    });
    return answers;
  };
  CHECK(agree() == std::vector<int>{0, 0, 0, 0});
  WriteText(scratch.Path("stop"), "");
  CHECK_FALSE(other.Requested());
  CHECK(agree() == std::vector<int>{1, 1, 1, 1});
  leader.RemoveFile();
  CHECK_FALSE(leader.Requested());
  CHECK_FALSE(std::filesystem::exists(scratch.Path("stop")));
}

}  // namespace
}  // namespace equipoise
