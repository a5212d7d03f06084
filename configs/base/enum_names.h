#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "configs/base/error.h"

namespace equipoise {

// One value of an enum, and its word in configurations, reports and messages.
//
// An enum's words are written down once, as a table beside it, in the order in which --help has
// them:
//
//   enum class LossWeight { kToken, kSample };
//   constexpr auto NamesOf(LossWeight) {
//     return std::to_array<EnumName<LossWeight>>(
//         {{LossWeight::kToken, "token"}, {LossWeight::kSample, "sample"}});
//   }
//
// A field of that type may then be visited like any other (configs/yaml/fields.h).
template <class Enum>
struct EnumName {
  Enum value;
  std::string_view name;
};

// An enum with such a table.
template <class T>
concept NamedEnum = std::is_enum_v<T> && requires(T value) {
  { NamesOf(value).front().name } -> std::convertible_to<std::string_view>;
};

template <NamedEnum Enum>
std::string ToString(Enum value) {
  for (const auto& each : NamesOf(value)) {
    if (each.value == value) return std::string(each.name);
  }
  EQUIPOISE_CHECK(false, "a value without a name: ", static_cast<int>(value));
  return "";
}

// The value of that name; nothing where there is none.
template <NamedEnum Enum>
std::optional<Enum> ParseEnum(std::string_view name) {
  for (const auto& each : NamesOf(Enum())) {
    if (each.name == name) return each.value;
  }
  return std::nullopt;
}

// All names, in the order of the table.
template <NamedEnum Enum>
std::vector<std::string> EnumNames() {
  std::vector<std::string> names;
  for (const auto& each : NamesOf(Enum())) names.emplace_back(each.name);
  return names;
}

}  // namespace equipoise
