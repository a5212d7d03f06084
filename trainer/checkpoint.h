#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "configs/json.h"
#include "data/packing.h"
#include "parallel/comm/communicator.h"

namespace equipoise {

// Where a run stands after `step` optimizer steps.
struct TrainState {
  int64_t step = 0;
  DataPosition position;
  int64_t optimizer_step = 0;            // steps not skipped, for AdamW's bias correction
  int64_t tokens = 0, samples = 0, images = 0;   // since the first step
  int64_t skipped_samples = 0;
  int64_t non_finite_in_a_row = 0;
};

// A checkpoint folder as docs/checkpoint_format.md describes it: tensors by name (`NAME` = fp32 master
// under its Hugging Face name, `exp_avg.NAME`, `exp_avg_sq.NAME`), in one safetensors file a rank, and
// index.json with state, environment, and the size and checksum of each file.
struct CheckpointIndex {
  TrainState state;
  Json environment;                       // mesh, threads, CPU type: a difference warns on resume
  std::map<std::string, std::string> file_of;   // tensor -> file
};

// Writes RUN/checkpoints/step-XXXXXXXX: every rank its file under a temporary folder, sync, rank 0 the
// index, rename, `latest`, deletes all but the newest `keep`. Collective. A run killed at any point leaves
// either the old or the new checkpoint whole. Throws RunError (disk full, not writable) on every rank alike.
void SaveCheckpoint(const std::string& run_dir, const TrainState& state, const Json& environment,
                    const std::map<std::string, at::Tensor>& this_ranks_tensors, int64_t keep,
                    Communicator& world);

// The folder that `latest` names, or the newest whole one where the link is absent or broken; empty
// when there is none. `path` may be a run folder or a step folder. Damaged ones are named on stderr and passed over
// when `path` is a run folder.
std::string FindCheckpoint(const std::string& path);

// Reads and verifies index.json (sizes always, checksums when `verify`). Throws DataError.
CheckpointIndex ReadCheckpointIndex(const std::string& checkpoint_dir, bool verify);

// Reads the named tensors into `targets` (fp32, same shapes). Throws DataError.
void ReadCheckpointTensors(const std::string& checkpoint_dir, const CheckpointIndex& index,
                           std::map<std::string, at::Tensor>& targets);

}  // namespace equipoise
