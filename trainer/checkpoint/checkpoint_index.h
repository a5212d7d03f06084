#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "configs/base/json.h"
#include "data/loading/packing.h"
#include "trainer/checkpoint/checkpoint_pieces.h"
#include "trainer/settings/loss_scale_section.h"

namespace equipoise {

// The step whose result is the best yet by a measure of the run (checkpoint.best).
struct BestStep {
  std::string measure;
  double value = 0;
  int64_t step = 0;
  std::string data = {};  // tells what it was measured on from other data; empty: not told
};

// The progress of a run after `step` steps.
struct TrainState {
  int64_t step = 0;
  DataPosition position;
  int64_t optimizer_step = 0;  // steps that updated the weights, for AdamW's bias correction
  int64_t tokens = 0, samples = 0, images = 0;  // totals since the first step
  int64_t skipped_samples = 0;
  int64_t non_finite_in_a_row = 0;
  std::optional<BestStep> best;
  std::optional<LossScale> loss_scale = std::nullopt;  // in fp16
  int64_t packs = 0;  // that were used since the first step; -1: not told
  // Whether answers were due after this step (eval.answer_every, eval.epochs), and a stop came
  // before they were all given.
  bool owes_answers = false;
  bool non_finite_tried = false;  // NonFiniteGuard::tried()
};

// A piece of a tensor, and the checkpoint's file that contains it.
struct StoredPiece {
  std::string file;
  TensorPiece piece;  // unset when the file has the whole tensor
  bool whole = false;
};

// A file of a checkpoint, as listed in the index.
struct ListedFile {
  int64_t bytes = 0;
  std::string xxh3_64;  // hexadecimal digits
};

// The content of index.json, as specified in docs/checkpoint_format.md: the state, the environment,
// the size and checksum of each file, and the tensors by name, whole or in pieces, in one
// safetensors file per rank. `NAME` is the weight under its Hugging Face name (the fp32 master
// weight, or a frozen weight in its compute dtype); `exp_avg.NAME` and `exp_avg_sq.NAME` are the
// moments of AdamW. LibTorch-free.
struct CheckpointIndex {  // NOLINT(bugprone-exception-escape): Json asserts when it moves
  int64_t version = 0;
  TrainState state;
  Json environment;  // mesh, threads, CPU type; differences cause a warning on resume
  Json sections;     // `model` and `data` of the configuration, see CheckSections()
  Json settings;     // the whole configuration; empty before version 3
  std::map<std::string, ListedFile> files;
  std::map<std::string, std::vector<StoredPiece>> tensors;
};

// Parses the text of index.json and checks its checksum, the consistency of its numbers, the files'
// names, and that each tensor is in a listed file; accesses no file. Throws DataError that begins
// with `source:`.
CheckpointIndex ParseCheckpointIndex(std::string_view text, const std::string& source);

}  // namespace equipoise
