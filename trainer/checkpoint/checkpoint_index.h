#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "configs/base/json.h"
#include "data/loading/packing.h"
#include "trainer/checkpoint/checkpoint_pieces.h"

namespace equipoise {

// Where a run stands after `step` optimizer steps.
struct TrainState {
  int64_t step = 0;
  DataPosition position;
  int64_t optimizer_step = 0;                   // steps not skipped, for AdamW's bias correction
  int64_t tokens = 0, samples = 0, images = 0;  // since the first step
  int64_t skipped_samples = 0;
  int64_t non_finite_in_a_row = 0;
};

// A piece of a tensor, and the file of a checkpoint that holds it.
struct StoredPiece {
  std::string file;
  TensorPiece piece;  // unknown where the file holds the whole tensor
  bool whole = false;
};

// A file of a checkpoint, as the index has it.
struct ListedFile {
  int64_t bytes = 0;
  std::string xxh3_64;  // hexadecimal digits
};

// index.json of a checkpoint folder as docs/checkpoint_format.md describes it: tensors by name
// (`NAME` = the weight under its Hugging Face name: the fp32 master, or a frozen one as it is
// computed with, `exp_avg.NAME`, `exp_avg_sq.NAME`), whole or in pieces, in one safetensors file a
// rank; state, environment, and the size and checksum of each file. LibTorch-free.
struct CheckpointIndex {  // NOLINT(bugprone-exception-escape): Json asserts when it moves
  int64_t version = 0;
  TrainState state;
  Json environment;  // mesh, threads, CPU type: a difference warns on resume
  Json sections;     // `model` and `data` of the configuration, see CheckSections
  Json settings;     // the whole configuration; empty before version 3
  std::map<std::string, ListedFile> files;
  std::map<std::string, std::vector<StoredPiece>> tensors;
};

// Reads the text of index.json and checks its checksum, its numbers against each other, the files'
// names and that each tensor is in a listed file; looks at no file. Throws DataError that begins
// with `source:`.
CheckpointIndex ParseCheckpointIndex(std::string_view text, const std::string& source);

}  // namespace equipoise
