#include "trainer/common/logging.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>

#include "configs/base/error.h"
#include "tests/trainer/scratch_folder.h"

namespace equipoise {
namespace {

// What `work` writes to a standard stream.
std::string Captured(int stream, const std::string& path, const std::function<void()>& work) {
  FILE* file = fopen(path.c_str(), "w");
  const int kept = dup(stream);
  dup2(fileno(file), stream);
  work();
  fflush(nullptr);
  dup2(kept, stream);
  close(kept);
  fclose(file);
  return ReadText(path);
}

void LogBoth(int rank, int size, const std::string& file) {
  LogOptions options;
  options.rank = rank;
  options.size = size;
  options.file = file;
  SetUpLogging(options);
  spdlog::info("some news");
  spdlog::error("bad news");
  spdlog::debug("a detail");
}

TEST_CASE("rank 0 logs to standard error and its file, never to standard output", "[log][cpu]") {
  const ScratchFolder scratch;
  std::string err;
  const std::string out = Captured(STDOUT_FILENO, scratch.Path("out"), [&] {
    err = Captured(STDERR_FILENO, scratch.Path("err"),
                   [&] { LogBoth(0, 1, scratch.Path("rank.log")); });
  });
  CHECK(out.empty());
  CHECK(err.find("some news") != std::string::npos);
  CHECK(err.find("a detail") == std::string::npos);
  CHECK(err.find("rank 0") == std::string::npos);  // alone
  const std::string log = ReadText(scratch.Path("rank.log"));
  CHECK(log.find("info some news\n") != std::string::npos);
  CHECK(log.find("error bad news\n") != std::string::npos);
}

TEST_CASE("another rank logs to its file, and errors to standard error", "[log][cpu]") {
  const ScratchFolder scratch;
  const std::string err = Captured(STDERR_FILENO, scratch.Path("err"),
                                   [&] { LogBoth(3, 4, scratch.Path("rank.log")); });
  CHECK(err.find("some news") == std::string::npos);
  CHECK(err.find("[rank 3] bad news") != std::string::npos);
  CHECK(ReadText(scratch.Path("rank.log")).find("[rank 3] some news") != std::string::npos);
}

TEST_CASE("a name with control characters does not steer the terminal", "[log][cpu]") {
  const ScratchFolder scratch;
  const std::string err = Captured(STDERR_FILENO, scratch.Path("err"), [&] {
    SetUpLogging({0, 1, scratch.Path("rank.log"), false});
    spdlog::warn("{}: no such file", "a\x1b[2Jb.png");
  });
  CHECK(err.find("a\\x1b[2Jb.png: no such file\n") != std::string::npos);
  CHECK(ReadText(scratch.Path("rank.log")).find('\x1b') == std::string::npos);
}

TEST_CASE("a log file is appended to, and one that cannot be opened is an error", "[log][cpu]") {
  const ScratchFolder scratch;
  for (int i = 0; i < 2; ++i) {
    Captured(STDERR_FILENO, scratch.Path("err"), [&] { LogBoth(0, 1, scratch.Path("rank.log")); });
  }
  const std::string log = ReadText(scratch.Path("rank.log"));
  CHECK(log.find("some news") != log.rfind("some news"));
  LogOptions options;
  options.file = "/proc/no/such/rank.log";
  CHECK_THROWS_AS(SetUpLogging(options), RunError);
}

}  // namespace
}  // namespace equipoise
