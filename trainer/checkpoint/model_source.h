#pragma once

#include <string>

namespace equipoise {

// Where a trained model lies: a Hugging Face folder, a run folder, or one of its step-* folders.
struct ModelSource {
  std::string folder;      // holds config.json and the tokenizer
  std::string checkpoint;  // step-* folder with the weights; empty = the weights lie in `folder`
  std::string run_config;  // config.yaml of the run; empty for a Hugging Face folder
};

// Finds out what `path` is. Throws DataError when it is none of the three.
ModelSource FindModel(const std::string& path);

// Copies config.json, the tokenizer and the other small files that describe a model (no weights)
// from a Hugging Face folder. Throws RunError when a file cannot be written.
void CopyModelDescription(const std::string& from, const std::string& to);

// The folder in a run that CopyModelDescription fills.
std::string ModelDescriptionFolder(const std::string& run_dir);

}  // namespace equipoise
