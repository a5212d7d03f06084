#pragma once

#include <array>
#include <cstdint>

#include "configs/base/enum_names.h"

namespace equipoise {

// Which of a source's records are used where not all are; those drawn at random are the same in
// each epoch.
enum class TakenPart : uint8_t { kFirst, kLast, kRandom };

constexpr auto NamesOf(TakenPart) {
  return std::to_array<EnumName<TakenPart>>(
      {{TakenPart::kFirst, "first"}, {TakenPart::kLast, "last"}, {TakenPart::kRandom, "random"}});
}

}  // namespace equipoise
