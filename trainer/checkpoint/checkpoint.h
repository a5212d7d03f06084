#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/json.h"
#include "parallel/comm/communicator.h"
#include "parallel/lazy_tensor.h"
#include "parallel/parameter.h"
#include "trainer/checkpoint/checkpoint_index.h"
#include "trainer/checkpoint/checkpoint_integrity.h"
#include "trainer/checkpoint/checkpoint_pieces.h"

namespace equipoise {

// A tensor, or this rank's piece of one, on any device. It is saved in its own dtype; elements that
// are read are converted to it.
struct HeldPiece {
  HeldPiece(at::Tensor whole)  // NOLINT(google-explicit-constructor): a tensor is a piece of itself
      : values(std::move(whole)), piece{values.sizes(), -1, {}, {}} {}
  HeldPiece(LazyTensor values, TensorPiece piece)
      : values(std::move(values)), piece(std::move(piece)) {}

  LazyTensor values;  // the elements of the piece, in any shape
  TensorPiece piece;
};

// The piece of the whole tensor that this rank's parameter is; only the ranges `runs` of its
// elements, if given.
TensorPiece PieceOf(const Parameter& parameter, const std::vector<Range>& runs = {});

// The content of a checkpoint. Everything but `tensors` is taken from rank 0.
struct CheckpointContent {  // NOLINT(bugprone-exception-escape)
  TrainState state;
  Json environment;
  Json sections;                             // {"model": {...}, "data": {...}}
  Json settings;                             // the whole configuration
  std::map<std::string, HeldPiece> tensors;  // tensors of this rank; may be empty
};

struct SavedCheckpoint {
  std::string folder;
  int64_t bytes = 0;  // sum over all ranks' files
};

// Writes RUN/checkpoints/step-XXXXXXXX: every rank writes its file to a temporary folder and syncs
// it; rank 0 writes the index, renames the folder, updates `latest`, and deletes all but the newest
// `keep` checkpoints (0: deletes none) and the one that `best` links to, that of state.best, if it
// is there. Collective. A run killed at any point leaves either the old
// or the new checkpoint complete. Throws RunError with the same text on every rank when the disk is
// full or not writable, when an element of a tensor is given by two ranks or by none, or when an
// element is not finite; older checkpoints then remain unchanged.
SavedCheckpoint SaveCheckpoint(const std::string& run_dir, const CheckpointContent& content,
                               int64_t keep, Communicator& world);

// Marks the checkpoints of a run that hold the weights after `optimizer_step` as unsound, so that
// FindCheckpoint() skips them and logs `why`. Returns the names of those that could be marked.
std::vector<std::string> MarkUnsound(const std::string& run_dir, int64_t optimizer_step,
                                     const std::string& why);

// Makes `latest` link to a checkpoint of the run that it goes back to, asked for by name: were it
// killed before it saves, it would else go on from those beyond. Nothing where `checkpoint_dir` is
// of another run. Throws RunError.
void GoBackTo(const std::string& run_dir, const std::string& checkpoint_dir);

// Whether the run has a checkpoint of that step which is not marked as unsound.
bool HasCheckpointOf(const std::string& run_dir, int64_t step);

// Gives a checkpoint its name back that a run was replacing when it was killed, on a file system
// that cannot exchange names (ReplaceFolder()). No other process may write to the run.
void FinishReplacing(const std::string& run_dir);

// What a run does that has no sound checkpoint: the end of FindCheckpoint()'s text.
inline constexpr char kAdviceOfResume[] =
    "gone on from; start anew in another run.dir, or choose one with --resume";

// The checkpoint to resume from. `path` is a step folder, which is returned, or a run folder, of
// which the checkpoint that `latest` links to is returned, else the newest before it, else the
// newest; empty when the run has none. Verifies all checksums, and that all elements are finite. In
// a run folder, checkpoints that fail this or are marked as unsound are skipped with a warning,
// those in `skipped` without one. Throws DataError when `path` is a damaged step folder, or a run
// folder without a valid checkpoint, whose text ends with `advice`.
std::string FindCheckpoint(const std::string& path, const std::vector<std::string>& skipped = {},
                           const std::string& advice = kAdviceOfResume);

// The warning that a checkpoint with such a fault is not used.
std::string PassingOver(const std::string& fault);

// The same on every rank, with one result (or DataError): rank 0 looks for checkpoints, and all of
// them share out a checkpoint's files to scan, `scan` as ScanTensors(). Collective. No rank waits
// for others longer than `scan` takes between two calls of its `alive`.
using FileScan = std::function<TensorScan(const std::string& path, const std::function<void()>&)>;
std::string FindCheckpoint(const std::string& path, Communicator& world,
                           const std::vector<std::string>& skipped = {},
                           const FileScan& scan = ScanTensors);

// Reads and verifies index.json: its checksum and the sizes of the files, and with `verify` also
// the files' checksums and that all elements are finite. Throws DataError.
CheckpointIndex ReadCheckpointIndex(const std::string& checkpoint_dir, bool verify);

// Reads tensors by name into the memory of the targets, from whatever pieces the checkpoint has;
// only the bytes needed are read. A name may occur several times. Throws DataError.
using CheckpointTargets = std::vector<std::pair<std::string, HeldPiece>>;
void ReadCheckpointTensors(const std::string& checkpoint_dir, const CheckpointIndex& index,
                           const CheckpointTargets& targets);

// Compares the `model` and `data` sections of a checkpoint with those of this run. Throws
// ConfigError that names the differing keys with both values, and annotation files that changed.
// Settings newer than the checkpoint are compared with their defaults.
void CheckSections(const std::string& checkpoint_dir, const Json& saved, const Json& current);

// The keys of `environment` that differ, as "threads 4 -> 2", comma-separated; empty when equal. If
// any differ, the resumed run reproduces the original within rounding only.
std::string EnvironmentDifference(const Json& saved, const Json& current);

// The settings that differ, as "train.lr was 1 and is 2", comma-separated; empty when equal, or
// when the checkpoint has no settings.
std::string SettingsDifference(const Json& saved, const Json& current);

}  // namespace equipoise
