#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec/model_config.h"
#include "models/weights/weights.h"
#include "parallel/parameter.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// A folder or file, and the parameters whose weights it has.
struct FolderPart {
  WeightFolder folder;
  std::vector<Parameter*> parameters;
  bool alone = true;  // all that it holds should be of use
};

// Where the weights of a run's first step come from, where they are not random.
struct FirstFolders {
  std::vector<FolderPart> parts;
  std::vector<Parameter*> drawn;  // of none: a new projector
};

// Shares `parameters` out to model.hf, or to model.vision, model.llm and model.projector.weights.
// Throws ConfigError where none is given, DataError for folders that cannot be read, and as
// ProjectorFile().
FirstFolders FindFirstFolders(const std::vector<Parameter*>& parameters, const ModelConfig& model,
                              const ModelSection& section);

// The folders that are read for those weights.
std::vector<std::string> FoldersRead(const ModelSection& section);

// A line for the log: where the first weights come from.
std::string FirstWeightsText(const ModelSection& section, int64_t seed);

}  // namespace equipoise
