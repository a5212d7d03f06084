#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace equipoise {

// Where Linux says of which control groups this process is, and where their files are.
struct ControlGroups {
  std::string membership = "/proc/self/cgroup";
  std::string mount = "/sys/fs/cgroup";
};

// The memory in bytes, and the processors' worth of time, that this process's control groups allow
// it and its like together: a container, a job of Slurm, a service. The least limit of its own
// groups and of those above them, of cgroup v1 or v2; nothing where none has one.
std::optional<int64_t> MemoryLimit(const ControlGroups& groups = {});
std::optional<double> ProcessorLimit(const ControlGroups& groups = {});

}  // namespace equipoise
