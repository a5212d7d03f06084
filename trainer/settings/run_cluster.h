#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "balance/costs/cluster.h"

namespace equipoise {

// The cluster with as many nodes as `ranks` ranks need. Preset `local` is this machine: all ranks
// are on one node and share its memory. Of several `islands` of so many ranks each, side by side,
// it is that of one: a node's host memory is shared by those on it. Throws ConfigError for an
// unknown preset.
Cluster ClusterFor(const ClusterConfig& config, int ranks, int islands = 1);

// The memory of this machine, or what a container or a job of Slurm may have of it.
int64_t MachineMemoryBytes();

// What each of so many ranks on this machine may use of its memory.
int64_t LocalMemoryBytes(int ranks);

// When preset `local`, which otherwise means this machine alone, is used on several: sets
// cluster.gpus_per_node to the ranks of a machine, so that tensor-parallel groups stay within one,
// and the memory of a rank and of a machine by the machine that has the least, so that every rank
// makes the same plan. `machines`: the machine of each rank, numbered arbitrarily. `least`: of
// MachineMemoryBytes() of all ranks.
void UseMachines(const std::vector<int>& machines, int64_t least, ClusterConfig& config);

// A GPU, as described by its driver.
struct GpuFacts {
  std::string name;                              // such as "NVIDIA H200"
  int64_t memory_bytes = 0;                      // in total
  int on_machine = 1;                            // number of GPUs of the machine
  int ranks = 1;                                 // that share it, and its memory
  int64_t machine_bytes = MachineMemoryBytes();  // memory of its machine
};

// Replaces preset `local` on a machine with GPUs: sets the preset of this GPU, its memory where it
// differs from the preset's, the machine's memory and its number of devices per node, unless
// `config` gives these. For a GPU without a preset only the last two. Returns a message for the
// user; empty when `config` has another preset.
std::string UseGpu(const GpuFacts& gpu, ClusterConfig& config);

}  // namespace equipoise
