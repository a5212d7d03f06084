#pragma once

#include <string>

#include "configs/base/json.h"

namespace equipoise {

// A byte-level BPE tokenizer that lies in files of its own, as Transformers' tokenizers in Python
// write it (InternVL's own trainer): vocab.json, merges.txt, and the class and the added tokens of
// tokenizer_config.json, or added_tokens.json.
struct VocabularyFiles {
  Json tokenizer;    // as tokenizer.json has it, what Transformers converts the files to
  std::string text;  // content of the files read
};

// Reads the files in `folder`, for the classes Qwen2Tokenizer (of Qwen2 to Qwen3) and
// GPT2Tokenizer. Throws DataError (`file: what; what to do`).
VocabularyFiles ReadVocabularyFiles(const std::string& folder);

}  // namespace equipoise
