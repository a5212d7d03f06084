#pragma once

#include <cstdint>
#include <optional>

namespace equipoise {

// The processors that a process may run on.
struct ProcessorSet {
  int64_t count = 1;
  uint64_t hash = 0;  // of which they are
};

// By this process's affinity, which a cpuset, taskset, Slurm and mpirun narrow.
ProcessorSet AllowedProcessors();

// A process's share of `allowed` processors that `sharing` processes may run on, itself among them,
// where `processes` of its kind on this machine have `quota` together; at least 1.
int64_t ProcessorShare(int64_t allowed, int sharing, std::optional<double> quota, int processes);

// The share of this process, as above, by its affinity and the limit of its control groups.
int64_t ProcessorShare(int sharing, int processes);

}  // namespace equipoise
