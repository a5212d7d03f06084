#pragma once

#include <string>

namespace equipoise {

// The location of a trained model: a Hugging Face folder, a run folder, or one of its step-*
// folders.
struct ModelSource {
  std::string folder;      // has config.json and the tokenizer
  std::string checkpoint;  // step-* folder with the weights; empty: the weights are in `folder`
  std::string run_config;  // config.yaml of the run; empty for a Hugging Face folder
};

// Determines what `path` is. Throws DataError when it is none of the three.
ModelSource FindModel(const std::string& path);

// Throws ConfigError where `source`, found at `path`, is a run: over an adapter given as --adapter
// the weights of its checkpoint would be read.
void RequireHuggingFaceBase(const ModelSource& source, const std::string& path);

// Copies config.json, the tokenizer and the other small files that describe a model (no weights)
// from a Hugging Face folder. Throws RunError when a file cannot be written.
void CopyModelDescription(const std::string& from, const std::string& to);

// Removes such files, if the folder has some.
void RemoveModelDescription(const std::string& folder);

// Copies those of them that are not config.json. Throws RunError.
void CopyBesideConfig(const std::string& from, const std::string& to);

// Copies those of them that say how a model is asked, the tokenizer, template and processors,
// beside adapters: without config.json, which would make a model of the folder. Throws RunError.
void CopyAskingDescription(const std::string& from, const std::string& to);

// Copies a tokenizer, given as a folder or as its file (with what is read beside it), in place of
// the one in `to`, so that it is found there as it is at `from`. Throws RunError.
void CopyTokenizer(const std::string& from, const std::string& to);

// The folder of a run that CopyModelDescription() writes to.
std::string ModelDescriptionFolder(const std::string& run_dir);

}  // namespace equipoise
