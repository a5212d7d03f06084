#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "configs/base/enum_names.h"

namespace equipoise {

// A constraint on a value, checked when a configuration is read.
struct Rule {
  std::optional<double> min;
  std::optional<double> max;
  std::vector<std::string> choices;
};

inline Rule AtLeast(double min) { return {min, std::nullopt, {}}; }
inline Rule Between(double min, double max) { return {min, max, {}}; }
inline Rule OneOf(std::vector<std::string> choices) {
  return {std::nullopt, std::nullopt, std::move(choices)};
}

// Every configuration struct lists each of its fields once:
//
//   struct CheckpointConfig {
//     int64_t every = 50;
//     std::string mode = "sync";
//     RetryConfig retry;                       // a nested struct
//     std::optional<int64_t> keep;
//
//     template <class Visitor>
//     void VisitFields(Visitor& visit) {
//       visit("every", every, "steps between checkpoints", AtLeast(1));
//       visit("mode", mode, "how a checkpoint is written", OneOf({"sync", "async"}));
//       visit("retry", retry, "what happens when a write fails");
//       visit("keep", keep, "checkpoints kept; older ones are deleted", AtLeast(1));
//     }
//   };
//
// A visitor is a callable `visit(name, value, help, rule = {})`. Values are bool, int64_t, double,
// std::string, enums with a table of names (configs/base/enum_names.h), which is their rule, nested
// structs, std::optional<T> and std::vector<T> of these. Reading, writing, `--set`, `--help` and
// equality are visitors over this one list (yaml_reader.h, yaml_writer.h).
//
// A struct that is only reported (parallel/plan.h) may visit other numbers too, and enums with a
// function `FieldValue(value)` beside them, which gives the number that is written.
//
// A struct may also be written as one word that stands for "all defaults, chosen for you":
//
//   struct ParallelSection {
//     static constexpr const char* kScalarForm = "auto";   // `parallel: auto`
//     bool automatic = true;                                // not among the fields
//
// Reading the word resets every field and sets `automatic`; reading a map, or setting a single key,
// clears it.
template <class T>
concept HasScalarForm = requires(T& value) {
  { T::kScalarForm } -> std::convertible_to<const char*>;
  { value.automatic } -> std::same_as<bool&>;
};

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
struct IsList : std::false_type {};
template <class T>
struct IsList<std::vector<T>> : std::true_type {};

// The rule of a field: the given one, or the names of its enum.
template <class T>
Rule RuleOf(const Rule& given) {
  if constexpr (NamedEnum<T>) {
    return OneOf(EnumNames<T>());
  } else if constexpr (IsOptional<T>::value || IsList<T>::value) {
    return RuleOf<typename T::value_type>(given);
  } else {
    return given;
  }
}

}  // namespace equipoise
