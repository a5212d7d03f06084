#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/spec/model_config.h"

namespace equipoise {

// The rows (dimension 0) of a tensor in a file that are one of our weights: the file's rows are
// `repeats` equal groups of `period` equal blocks, and blocks [first, first + count) of each group
// are ours, in this order. The default is the whole tensor. Examples:
// - The second of three equal parts: first 1, count 1, period 3, repeats 1.
// - The keys, where each key/value head has a group of g query heads, a key and a value: first g,
//   count 1, period g + 2, repeats the number of key/value heads.
struct FusedRows {
  int64_t first = 0, count = 1, period = 1, repeats = 1;

  bool whole() const { return period == count; }
};

// A renaming between our names of weights and those of the code that a model was published with.
// Both names are patterns: they end where the weight's name ends or at a dot, and '#' stands for a
// layer's number.
struct Renaming {
  std::string ours, theirs;
  FusedRows rows;
};

// The place of a weight in a file.
struct FileWeight {
  std::string name;  // empty: the file does not have it
  FusedRows rows;
};

// Names of a model's weights: ours, which are those of Transformers' save_pretrained, and others
// found in files. LibTorch-free.
class WeightNames {
 public:
  // `renamings`: of the encoder's and the connector's weights, to names of the original code.
  // `decoder`: of the language model's, which a folder of any naming has. `in_memory`: to the
  // modules of the code that loads a folder, where these have other names than its weights.
  WeightNames(const ModelConfig& config, std::vector<Renaming> renamings,
              const std::vector<Renaming>& decoder = {}, std::vector<Renaming> in_memory = {});

  struct Held {
    std::string name;  // ours
    FusedRows rows;    // of the file's tensor
  };
  // The weights that a file's tensor, in any naming, holds: one, or several for a fused tensor. A
  // name that has no other form is returned unchanged.
  //   model.language_model.layers.0.X     language_model.model.layers.0.X    (in memory / in files)
  //   lm_head.weight, with an encoder     language_model.lm_head.weight
  //   layers.0.X of a bare text model     model.layers.0.X
  // A name on the right side of a model's renamings becomes that on the left side.
  std::vector<Held> Ours(const std::string& name) const;
  // Our name of a tensor; `name` itself for a fused one.
  std::string Canonical(const std::string& name) const;
  // The place of a parameter (given by our name) in a folder of the model's naming.
  FileWeight InFolder(const std::string& parameter) const;
  // The place of a module (a parameter's name without its last part) in the memory of the code that
  // loads such a folder, as PEFT sees it.
  FileWeight ModuleInMemory(const std::string& module) const;
  // The name of that; our name where it is part of a fused one.
  std::string InMemory(const std::string& module) const;

 private:
  std::vector<Held> Renamed(const std::string& name) const;

  std::vector<Renaming> renamings_, decoder_, in_memory_;  // renamings_: all to names in files
  bool has_vision_;
  WeightNaming naming_;
};

// Finds our parameters among the names of a file.
class WeightMap {
 public:
  // Throws DataError that begins with `source` when two names mean the same weight.
  WeightMap(const std::vector<std::string>& file_names, const WeightNames& names,
            const std::string& source);

  // The place of a parameter (given by any of its names) in the file.
  FileWeight Find(const std::string& parameter) const;

 private:
  const WeightNames names_;
  std::map<std::string, FileWeight> in_file_;  // by our name
};

}  // namespace equipoise
