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

// What each of so many ranks on this machine may use of its memory.
int64_t LocalMemoryBytes(int ranks);

// Sets cluster.gpus_per_node to the ranks of a machine when preset `local`, which otherwise means a
// single node, is used on several machines, so that tensor-parallel groups stay within a machine.
// `machines`: the machine of each rank, numbered arbitrarily.
void UseMachines(const std::vector<int>& machines, ClusterConfig& config);

// A GPU, as described by its driver.
struct GpuFacts {
  std::string name;          // such as "NVIDIA H200"
  int64_t memory_bytes = 0;  // in total
  int on_machine = 1;        // number of GPUs of the machine
};

// Replaces preset `local` on a machine with GPUs: sets the preset of this GPU, its memory where it
// differs from the preset's, the machine's memory and its number of devices per node, unless
// `config` gives these. For a GPU without a preset only the last two. Returns a message for the
// user; empty when `config` has another preset.
std::string UseGpu(const GpuFacts& gpu, ClusterConfig& config);

}  // namespace equipoise
