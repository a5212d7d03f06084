#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "balance/costs/cluster.h"

namespace equipoise {

// The machines of `cluster` that hold so many ranks. `local` is this machine: all ranks are on one
// node and share its memory. Throws ConfigError for an unknown preset.
Cluster ClusterFor(const ClusterConfig& config, int ranks);

// `local` takes all ranks for one node, on which tensor groups may lie anywhere: where they are on
// several machines, a node is what each of these holds. `machines`: of each rank, by any number.
void UseMachines(const std::vector<int>& machines, ClusterConfig& config);

// A GPU as its driver describes it.
struct GpuFacts {
  std::string name;          // "NVIDIA H200"
  int64_t memory_bytes = 0;  // in all
  int on_machine = 1;        // GPUs of its machine
};

// `local` on a machine with GPUs: the preset for this GPU, its memory where that is not the
// preset's, and as many devices a node as the machine has, as far as `config` leaves them open. Of
// a GPU without a preset the memory alone. Returns the line to tell the user; empty where `config`
// names a preset.
std::string UseGpu(const GpuFacts& gpu, ClusterConfig& config);

}  // namespace equipoise
