#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/json.h"
#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"
#include "trainer/checkpoint/checkpoint_index.h"
#include "trainer/checkpoint/checkpoint_pieces.h"

namespace equipoise {

// A tensor, or the piece of one that a rank has in memory: contiguous, on any device. Its dtype is
// the one that is saved; what is read is converted to it.
struct HeldPiece {
  HeldPiece(at::Tensor whole)  // NOLINT(google-explicit-constructor): a tensor is a piece of itself
      : values(std::move(whole)), piece{values.sizes().vec(), -1, {}, {}} {}
  HeldPiece(at::Tensor values, TensorPiece piece)
      : values(std::move(values)), piece(std::move(piece)) {}

  at::Tensor values;  // the elements of the piece, in any shape
  TensorPiece piece;
};

// Where a parameter of this rank lies in the whole tensor; of its elements the `runs`, or all.
TensorPiece PieceOf(const Parameter& parameter, const std::vector<Range>& runs = {});

// Content of a checkpoint. `state`, `environment` and `sections` of rank 0 are written.
struct CheckpointContent {  // NOLINT(bugprone-exception-escape)
  TrainState state;
  Json environment;
  Json sections;                             // {"model": {...}, "data": {...}}
  Json settings;                             // the whole configuration
  std::map<std::string, HeldPiece> tensors;  // this rank's; may be none
};

struct SavedCheckpoint {
  std::string folder;
  int64_t bytes = 0;  // of all ranks' files
};

// Writes RUN/checkpoints/step-XXXXXXXX: every rank its file under a temporary folder, sync, rank 0
// the index, rename, `latest`, deletes all but the newest `keep` (0: deletes none). Collective. A
// run killed at any point leaves either the old or the new checkpoint whole. Throws RunError (disk
// full, not writable, elements of a tensor given by two ranks or by none, an element that is not
// finite) with the same text on every rank; the older checkpoints then stay as they were.
SavedCheckpoint SaveCheckpoint(const std::string& run_dir, const CheckpointContent& content,
                               int64_t keep, Communicator& world);

// Marks the checkpoints of a run that hold the weights after `optimizer_step` as unsound: `why` is
// told when they are passed over. Their names. What cannot be marked is left out.
std::vector<std::string> MarkUnsound(const std::string& run_dir, int64_t optimizer_step,
                                     const std::string& why);

// The folder that `latest` names, or the newest good one where the link is absent or broken; empty
// when the run has none. `path` may be a run folder or a step folder. All checksums are verified,
// and that all elements are finite. Others, those marked as unsound and those of `passed_over` are
// passed over when `path` is a run folder, and named in the log. Throws DataError when `path` is a
// damaged step folder, or a run folder in which no checkpoint is good.
std::string FindCheckpoint(const std::string& path,
                           const std::vector<std::string>& passed_over = {});

// FindCheckpoint on rank 0, its answer (or DataError) on every rank. Collective.
std::string FindCheckpoint(const std::string& path, Communicator& world,
                           const std::vector<std::string>& passed_over = {});

// Reads and verifies index.json (its checksum and the files' sizes always; when `verify` the files'
// checksums and that all elements are finite). Throws DataError.
CheckpointIndex ReadCheckpointIndex(const std::string& checkpoint_dir, bool verify);

// Reads pieces into the memory of the targets, from whatever pieces the checkpoint has, only the
// bytes that are needed. Throws DataError. A name may come several times.
using CheckpointTargets = std::vector<std::pair<std::string, HeldPiece>>;
void ReadCheckpointTensors(const std::string& checkpoint_dir, const CheckpointIndex& index,
                           const CheckpointTargets& targets);

// Compares the `model` and `data` sections of a checkpoint with those of this run. Throws
// ConfigError that names the differing keys with both values, and annotation files that changed. A
// setting that the checkpoint is too old to have had its default then.
void CheckSections(const std::string& checkpoint_dir, const Json& saved, const Json& current);

// The keys of `environment` that differ, as "threads 4 -> 2", comma-separated; empty when equal.
// Resuming then gives another run, equal within rounding only.
std::string EnvironmentDifference(const Json& saved, const Json& current);

// The settings that differ, as "train.lr was 1 and is 2", comma-separated; empty when equal, and
// for a checkpoint that has none.
std::string SettingsDifference(const Json& saved, const Json& current);

}  // namespace equipoise
