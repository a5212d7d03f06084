#include "trainer/outputs/run_folder.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "parallel/comm/single_communicator.h"
#include "tests/parallel/run_ranks.h"
#include "tests/trainer/scratch_folder.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a run folder is created with its subfolders", "[run_folder][cpu]") {
  const ScratchFolder scratch;
  SingleCommunicator world;
  const RunFolder folder(scratch.Path("runs/a"), world);
  for (const char* name : {"checkpoints", "log", "tensorboard"}) {
    CHECK(fs::is_directory(folder.Path(name)));
  }
  CHECK(folder.LogPath(3) == scratch.Path("runs/a/log/rank-00003.log"));
}

TEST_CASE("a second job in one run folder is refused on all its ranks", "[run_folder][cpu]") {
  const ScratchFolder scratch;
  const std::string dir = scratch.Path("run");
  SingleCommunicator world;
  std::optional<RunFolder> first;
  first.emplace(dir, world);
  std::vector<std::string> texts(3);
  RunRanks(3, [&](Communicator& second) {
    try {
      const RunFolder folder(dir, second);
    } catch (const RunError& error) {
      texts[static_cast<size_t>(second.rank())] = error.what();
    }
  });
  const std::string owner = "in use by process " + std::to_string(getpid()) + " on ";
  for (const std::string& text : texts) CHECK(text.find(owner) != std::string::npos);
  first.reset();
  CHECK_NOTHROW(RunFolder(dir, world));
}

TEST_CASE("a run folder that cannot be made is one line", "[run_folder][cpu]") {
  const ScratchFolder scratch;
  WriteText(scratch.Path("file"), "");
  SingleCommunicator world;
  CHECK_THROWS_WITH(RunFolder(scratch.Path("file/run"), world),
                    Catch::Contains("cannot create") && Catch::Contains("another run.dir"));
}

TEST_CASE("a run folder is checked without a trace", "[run_folder][cpu]") {
  const ScratchFolder scratch;
  WriteText(scratch.Path("file"), "");
  SingleCommunicator world;
  CHECK_NOTHROW(CheckRunFolder(scratch.Path("runs/a"), world));
  CHECK_NOTHROW(CheckRunFolder(scratch.Path("runs/b/"), world));
  CHECK_FALSE(fs::exists(scratch.Path("runs")));
  CHECK_THROWS_WITH(CheckRunFolder(scratch.Path("file/run"), world),
                    Catch::Contains("cannot create"));
  CHECK_THROWS_WITH(CheckRunFolder(scratch.Path("file"), world), Catch::Contains("cannot create"));
  const RunFolder folder(scratch.Path("run"), world);
  WriteText(folder.Path("metrics.jsonl"), "{}");
  CHECK_THROWS_WITH(CheckRunFolder(scratch.Path("run"), world), Catch::Contains("in use by"));
  for (const char* name : {"lock", "log", "checkpoints", "metrics.jsonl"})
    CHECK(fs::exists(folder.Path(name)));
}

TEST_CASE("--resume none refuses checkpoints and nothing else", "[run_folder][cpu]") {
  const ScratchFolder scratch;
  CHECK_NOTHROW(RefuseCheckpoints(scratch.Path("absent")));
  fs::create_directories(scratch.Path("checkpoints/.tmp-step-00000005"));
  CHECK_NOTHROW(RefuseCheckpoints(scratch.path()));
  fs::create_directories(scratch.Path("checkpoints/step-00000005"));
  CHECK_THROWS_AS(RefuseCheckpoints(scratch.path()), ConfigError);
}

TEST_CASE("a start from another run's checkpoint refuses those that it would lose",
          "[run_folder][cpu]") {
  const ScratchFolder scratch;
  const std::string mine = scratch.Path("mine"), other = scratch.Path("other");
  const std::string step = "/checkpoints/step-00000005";
  fs::create_directories(other + step);
  CHECK_NOTHROW(RefuseOthersCheckpoint(mine, other + step));
  fs::create_directories(mine + "/checkpoints");
  CHECK_NOTHROW(RefuseOthersCheckpoint(mine, other));
  fs::create_directories(mine + step);
  CHECK_THROWS_WITH(RefuseOthersCheckpoint(mine, other + step),
                    Catch::Contains(mine + step + ": --resume " + other + step));
  CHECK_THROWS_AS(RefuseOthersCheckpoint(mine, other), ConfigError);
  CHECK_NOTHROW(RefuseOthersCheckpoint(mine, mine));
  CHECK_NOTHROW(RefuseOthersCheckpoint(mine, mine + step));
  fs::create_directory_symlink("step-00000005", mine + "/checkpoints/latest");
  CHECK_NOTHROW(RefuseOthersCheckpoint(mine, mine + "/checkpoints/latest"));
  CHECK_NOTHROW(RefuseOthersCheckpoint(mine, scratch.Path("absent")));
  const std::string linked = scratch.Path("linked");
  fs::create_directories(linked);
  fs::create_directory_symlink(mine + "/checkpoints", linked + "/checkpoints");
  CHECK_NOTHROW(RefuseOthersCheckpoint(linked, linked + step));
  CHECK_NOTHROW(RefuseOthersCheckpoint(linked, linked + "/checkpoints/latest"));
  CHECK_THROWS_AS(RefuseOthersCheckpoint(linked, other + step), ConfigError);
}

TEST_CASE("what is in the way of a link or a stop file is told at the start", "[run_folder][cpu]") {
  const std::string in_the_way = GENERATE("checkpoints/latest", "stop");
  const ScratchFolder scratch;
  fs::create_directories(scratch.Path(in_the_way + "/deep"));
  SingleCommunicator world;
  CHECK_THROWS_WITH(RunFolder(scratch.path(), world),
                    Catch::Contains(scratch.Path(in_the_way)) && Catch::Contains("move it away"));
}

TEST_CASE("a link and a stop file are where they belong", "[run_folder][cpu]") {
  const ScratchFolder scratch;
  fs::create_directories(scratch.Path("checkpoints"));
  fs::create_symlink("step-00000010", scratch.Path("checkpoints/latest"));
  WriteText(scratch.Path("stop"), "");
  SingleCommunicator world;
  CHECK_NOTHROW(RunFolder(scratch.path(), world));
}

struct LostCase {
  std::string metrics;
  bool report;
  bool lost;
};

TEST_CASE("metrics that show that a checkpoint was saved do not start anew", "[run_folder][cpu]") {
  const std::string one = "{\"step\":1,\"loss\":1}\n", two = "{\"step\":2,\"loss\":1}\n",
                    three = "{\"step\":3,\"loss\":1}\n", skipped = "{\"step\":2,\"loss\":null}\n",
                    overflow = "{\"step\":2,\"loss\":1,\"grad_norm\":null}\n";
  const LostCase c = GENERATE_COPY(values<LostCase>({{"", false, false},
                                                     {"torn", false, false},
                                                     {one, false, false},
                                                     {one + two, false, false},  // before the save
                                                     {one + two + three, false, true},
                                                     {one + skipped + three, false, false},
                                                     {one + overflow + three, false, false},
                                                     {one, true, true},
                                                     {"", true, false}}));
  const ScratchFolder scratch;
  WriteText(scratch.Path("metrics.jsonl"), c.metrics);
  if (c.report) WriteText(scratch.Path("report.html"), "");
  if (c.lost) {
    CHECK_THROWS_AS(RefuseLostCheckpoints(scratch.path(), StepInterval(2)), DataError);
  } else {
    CHECK_NOTHROW(RefuseLostCheckpoints(scratch.path(), StepInterval(2)));
  }
}

TEST_CASE("metrics are set aside under the first free name", "[run_folder][cpu]") {
  const ScratchFolder scratch;
  const std::string path = scratch.Path("metrics.jsonl");
  CHECK(RotateMetrics(path).empty());
  WriteText(path, "");
  CHECK(RotateMetrics(path).empty());
  for (const char* number : {"1", "2", "3"}) {
    const std::string text = std::string("{\"step\":") + number + "}\n";
    WriteText(path, text);
    const std::string aside = RotateMetrics(path);
    CHECK(aside == path + "." + number);
    CHECK(ReadText(aside) == text);
    CHECK_FALSE(fs::exists(path));
  }
}

struct CutCase {
  std::string before;
  int64_t step;
  std::string after;
};

TEST_CASE("metrics are cut back to the resumed step", "[run_folder][cpu]") {
  const std::string one = "{\"step\":1,\"loss\":0.123456789}\n", two = "{\"step\":2}\n";
  const CutCase c = GENERATE_COPY(values<CutCase>({
      {one + two, 2, one + two},
      {one + two, 1, one},
      {one + two, 0, ""},
      {one + two + "{\"step\":3,\"lo", 5, one + two},  // torn
      {one + two + "{\"step\":3}", 5, one + two},      // its end is missing
      {one + "garbage\n" + two + "[3]\n{\"step\":1.5}\n", 5, one + two},
      {"", 3, ""},
  }));
  const ScratchFolder scratch;
  const std::string path = scratch.Path("metrics.jsonl");
  WriteText(path, c.before);
  TruncateMetrics(path, c.step);
  CHECK(ReadText(path) == c.after);
}

TEST_CASE("no metrics file is no error", "[run_folder][cpu]") {
  const ScratchFolder scratch;
  TruncateMetrics(scratch.Path("metrics.jsonl"), 3);
  CHECK_FALSE(fs::exists(scratch.Path("metrics.jsonl")));
}

}  // namespace
}  // namespace equipoise
