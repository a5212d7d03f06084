#pragma once

#include <string>

namespace equipoise {

// What to write in place of something of another trainer (Transformers, LLaMA-Factory, ms-swift,
// InternVL, LLaVA, Qwen's).
struct FamiliarAdvice {
  std::string whole;  // "the key here is train.lr"
  std::string brief;  // "write train.lr"
};

// Of a key of theirs; empty texts for any other name.
FamiliarAdvice FamiliarName(const std::string& name);

// Of a value of theirs for a key of ours; "" for any other.
std::string FamiliarValue(const std::string& key, const std::string& value);

}  // namespace equipoise
