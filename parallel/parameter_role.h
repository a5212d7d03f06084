#pragma once

#include <cstdint>

namespace equipoise {

// Where a parameter's values come from, and whether checkpoints hold them.
enum class ParameterRole : uint8_t {
  kWeight,   // a weight of the model, in its folder and in checkpoints
  kFrozen,   // one that is not trained in a layer that is trained in part; where a kWeight is
  kBase,     // a weight under adapters: frozen, in the model's folder, never in checkpoints
  kAdapter,  // of an adapter (LoRA): trained, in no folder of the model, in checkpoints
};

// Whether a parameter of this role is trained, unless all of its module is frozen.
constexpr bool MayTrain(ParameterRole role) {
  return role == ParameterRole::kWeight || role == ParameterRole::kAdapter;
}

}  // namespace equipoise
