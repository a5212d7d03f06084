#pragma once

#include <string>

namespace equipoise {

// Advice for a key of another trainer (Transformers, LLaMA-Factory, ms-swift, InternVL), such as
// "the key here is train.lr". "" for any other name.
std::string FamiliarName(const std::string& name);

}  // namespace equipoise
