#pragma once

#include <cstdint>

namespace equipoise {

// Where a parameter's values come from, and whether checkpoints hold them.
enum class ParameterRole : uint8_t {
  kWeight,   // a weight of the model, in its folder and in checkpoints
  kBase,     // a weight under adapters: frozen, in the model's folder, never in checkpoints
  kAdapter,  // of an adapter (LoRA): trained, in no folder of the model, in checkpoints
};

}  // namespace equipoise
