#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "tests/parallel/run_ranks.h"
#include "tests/trainer/checkpoint_sample.h"
#include "tests/trainer/scratch_folder.h"
#include "trainer/checkpoint/checkpoint.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 2;
constexpr int kRounds = 40;
constexpr int64_t kNumel = 100'000;

// Saves step after step until it is killed.
[[noreturn]] void SaveForEver(const std::string& run_dir, int64_t step) {
  RunRanks(kRanks, [&](Communicator& world) {
    for (int64_t next = step;; ++next) {
      SaveCheckpoint(run_dir, SampleContent(next, world.rank(), kNumel), /*keep=*/2, world);
    }
  });
  _exit(1);
}

bool HasTemporary(const std::string& checkpoints) {
  for (const auto& entry : fs::directory_iterator(checkpoints)) {
    if (entry.path().filename().string().rfind(".tmp-", 0) == 0) return true;
  }
  return false;
}

TEST_CASE("a run that is killed at any time while it saves leaves a whole checkpoint",
          "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  RunRanks(kRanks, [&](Communicator& world) {
    SaveCheckpoint(scratch.path(), SampleContent(1, world.rank(), kNumel), 2, world);
  });
  std::mt19937 random(20240607);
  std::uniform_int_distribution<int> delay_us(1'000, 60'000);
  int64_t step = 1;
  int torn = 0, advanced = 0;
  for (int round = 0; round < kRounds; ++round) {
    INFO("round " << round);
    const pid_t child = fork();
    if (child == 0) SaveForEver(scratch.path(), step + 1);
    std::this_thread::sleep_for(std::chrono::microseconds(delay_us(random)));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    REQUIRE(WIFSIGNALED(status));
    torn += HasTemporary(scratch.Path("checkpoints")) ? 1 : 0;
    const std::string folder = FindCheckpoint(scratch.path());
    REQUIRE(HoldsSample(folder, kRanks, kNumel));
    const int64_t found = ReadCheckpointIndex(folder, /*verify=*/false).state.step;
    REQUIRE(found >= step);  // what was once finished is not lost
    advanced += found > step ? 1 : 0;
    step = found;
  }
  // The kills did hit saves under way, and saves did get done between.
  CHECK(torn > kRounds / 4);
  CHECK(advanced > 0);
}

}  // namespace
}  // namespace equipoise
