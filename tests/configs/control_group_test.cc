#include "configs/base/control_group.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/trainer/scratch_folder.h"

namespace equipoise {
namespace {

void Write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

class Groups {
 public:
  explicit Groups(const std::string& membership) { Write(at_.membership, membership); }
  Groups& With(const std::string& file, const std::string& text) {
    Write(at_.mount + "/" + file, text);
    return *this;
  }
  std::optional<int64_t> memory() const { return MemoryLimit(at_); }
  std::optional<double> processors() const { return ProcessorLimit(at_); }

 private:
  ScratchFolder folder_;
  ControlGroups at_{folder_.Path("membership"), folder_.Path("mount")};
};

TEST_CASE("the least limit of a process's control groups counts", "[control_group][cpu]") {
  Groups groups("0::/job/step\n");
  CHECK_FALSE(groups.memory());
  CHECK_FALSE(groups.processors());
  groups.With("job/step/memory.max", "max\n").With("job/step/cpu.max", "max 100000\n");
  CHECK_FALSE(groups.memory());
  CHECK_FALSE(groups.processors());
  groups.With("job/memory.max", "34359738368\n").With("job/cpu.max", "400000 100000\n");
  CHECK(groups.memory() == 34359738368);
  CHECK(groups.processors() == 4.0);
  groups.With("job/step/memory.max", "4096").With("job/step/cpu.max", "150000 100000");
  CHECK(groups.memory() == 4096);
  CHECK(groups.processors() == 1.5);
  // Other groups' limits are not its own.
  groups.With("other/memory.max", "1").With("other/cpu.max", "1 100000");
  CHECK(groups.memory() == 4096);
  CHECK(groups.processors() == 1.5);
}

TEST_CASE("a container sees its own control group as the root", "[control_group][cpu]") {
  for (const char* membership : {"0::/\n", "0::/machine/docker/abc\n", "0::/../other\n"}) {
    INFO(membership);
    Groups groups(membership);
    groups.With("memory.max", "4096\n").With("cpu.max", "200000 100000\n");
    CHECK(groups.memory() == 4096);
    CHECK(groups.processors() == 2.0);
  }
}

TEST_CASE("limits of cgroup v1 are read", "[control_group][cpu]") {
  Groups groups("5:cpuset:/a\n4:cpu,cpuacct:/slurm/job_1\n3:memory:/slurm/job_1/step_0\n");
  groups.With("memory/memory.limit_in_bytes", "9223372036854771712\n")
      .With("cpu/slurm/job_1/cpu.cfs_quota_us", "-1\n")
      .With("cpu/slurm/job_1/cpu.cfs_period_us", "100000\n");
  CHECK_FALSE(groups.memory());
  CHECK_FALSE(groups.processors());
  groups.With("memory/slurm/job_1/memory.limit_in_bytes", "8589934592\n")
      .With("cpu/slurm/cpu.cfs_quota_us", "250000\n")
      .With("cpu/slurm/cpu.cfs_period_us", "100000\n");
  CHECK(groups.memory() == 8589934592);
  CHECK(groups.processors() == 2.5);
}

TEST_CASE("damaged files of control groups set no limit", "[control_group][cpu]") {
  for (const char* membership : {"", "nonsense", "0:", "0::", ":::"}) {
    INFO(membership);
    CHECK_FALSE(Groups(membership).memory());
  }
  for (const char* text : {"", "0", "-1", "x", "0 100000", "100000", "-1 100000", "1 0"}) {
    INFO(text);
    CHECK_FALSE(Groups("0::/\n").With("cpu.max", text).processors());
  }
}

TEST_CASE("this process's limits are positive, where it has any", "[control_group][cpu]") {
  CHECK(MemoryLimit().value_or(1) > 0);
  CHECK(ProcessorLimit().value_or(1) > 0);
}

}  // namespace
}  // namespace equipoise
