#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "configs/yaml/fields.h"
#include "configs/yaml/unknown_keys.h"
#include "configs/yaml/yaml_tree.h"

namespace equipoise {

// One `--set a.b=c`: `key` is the dotted path (list items by number: data.train.0.repeat), `value`
// is YAML text.
struct Override {
  std::string key;
  std::string value;
};

// Parses "a.b=c". Throws ConfigError.
Override ParseOverride(const std::string& text);

// Fills `config` from a YAML file on top of its defaults, then from the overrides, in order. A list
// replaces the default list; a map changes the keys that it names. Throws ConfigError whose text is
// `file:line:col: key: what; what to do` for unknown keys (all of them in one line, with the known
// ones that they stand for), duplicate keys, wrong types, numbers out of range or in a doubtful
// form
// (`010`), cycles, alias bombs, and files that are too large or nested too deep. `config` is then
// partly filled: drop it.
template <class Config>
void ReadConfig(const std::string& path, const std::vector<Override>& overrides, Config& config);

// ReadConfig() from text; messages have `name` in place of the file.
template <class Config>
void ReadConfigText(const std::string& name, const std::string& text,
                    const std::vector<Override>& overrides, Config& config);

namespace internal {

// The place of a value in the configuration.
struct Place {
  std::string key;  // dotted path, "" for the whole
  Rule rule;
};

void ReadScalar(const YamlNode& node, const Place& place, bool& value);
void ReadScalar(const YamlNode& node, const Place& place, int64_t& value);
void ReadScalar(const YamlNode& node, const Place& place, double& value);
void ReadScalar(const YamlNode& node, const Place& place, std::string& value);

// Throws unless the node is a list. `first_key`: the first key of its items where they are maps.
void RequireList(const YamlNode& node, const Place& place, const std::string& first_key);
// Throws unless the node is a map (or empty: all defaults), or a scalar that equals `scalar_form`;
// returns whether it is the latter. `known`: the keys of such a map.
bool RequireMap(const YamlNode& node, const Place& place, const std::vector<std::string>& known,
                const char* scalar_form);
[[noreturn]] void FailNoParts(const YamlNode& node, const std::string& key);
// The index that `name`, a part of an override's key, gives in a list of `size` items. Throws.
size_t ListIndex(const YamlNode& node, const std::string& key, const std::string& name,
                 size_t size);

std::vector<std::string> SplitKey(const std::string& key);
// The value of an override: parsed as YAML, and for a field of text verbatim, as a shell argument
// has no comments and needs no quotes. Messages begin with `--set a.b=c`.
struct OverrideValue {
  YamlNode yaml;  // valid where `problem` is empty
  std::string problem;
  YamlNode text;
};
OverrideValue ParseOverrideValue(const Override& override);
// The value as YAML. Throws where it is not YAML.
const YamlNode& RequireYaml(const OverrideValue& value);

// Declared first: they call each other.
template <class T>
void ReadValue(const YamlNode& node, const Place& place, T& value);
template <class T>
void SetValue(const std::vector<std::string>& path, const OverrideValue& given, const Place& place,
              T& value);

struct MapReader {
  const YamlNode& map;
  const std::string& parent;
  template <class T>
  void operator()(const char* name, T& value, const char*, const Rule& rule = {}) {
    const YamlNode* node = map.Find(name);
    if (node != nullptr) ReadValue(*node, {JoinKey(parent, name), rule}, value);
  }
};

struct FieldSetter {
  const std::vector<std::string>& path;
  const OverrideValue& given;
  const std::string& parent;
  template <class T>
  void operator()(const char* name, T& value, const char*, const Rule& rule = {}) {
    if (path.front() != name) return;
    SetValue({path.begin() + 1, path.end()}, given, {JoinKey(parent, name), rule}, value);
  }
};

template <class T>
void ReadStruct(const YamlNode& node, const Place& place, T& value) {
  const char* scalar_form = nullptr;
  if constexpr (HasScalarForm<T>) scalar_form = T::kScalarForm;
  const bool is_scalar = RequireMap(node, place, FieldNames(value), scalar_form);
  if constexpr (HasScalarForm<T>) {
    if (is_scalar) value = T{};
    value.automatic = is_scalar;
  }
  if (is_scalar) return;
  MapReader reader{node, place.key};
  value.VisitFields(reader);
}

template <class T>
void ReadValue(const YamlNode& node, const Place& place, T& value) {
  if constexpr (IsOptional<T>::value) {
    if (node.kind == YamlNode::Kind::kNull) {
      value.reset();
    } else {
      ReadValue(node, place, value.emplace());
    }
  } else if constexpr (IsList<T>::value) {
    std::string first_key;
    if constexpr (std::is_class_v<typename T::value_type> &&
                  !std::is_same_v<typename T::value_type, std::string>) {
      typename T::value_type item{};
      first_key = FieldNames(item).front();
    }
    value.clear();
    if constexpr (std::is_same_v<typename T::value_type, std::string>) {
      if (node.kind == YamlNode::Kind::kScalar) {  // one text is a list of one
        ReadScalar(node, place, value.emplace_back());
        return;
      }
    }
    RequireList(node, place, first_key);
    for (size_t i = 0; i < node.items.size(); ++i) {
      typename T::value_type item{};
      ReadValue(node.items[i], {JoinKey(place.key, std::to_string(i)), place.rule}, item);
      value.push_back(std::move(item));
    }
  } else if constexpr (std::is_class_v<T> && !std::is_same_v<T, std::string>) {
    ReadStruct(node, place, value);
  } else if constexpr (NamedEnum<T>) {
    std::string name;
    ReadScalar(node, {place.key, RuleOf<T>({})}, name);
    value = *ParseEnum<T>(name);
  } else {
    ReadScalar(node, place, value);
  }
}

// ReadValue() after a check of all keys.
template <class T>
void ReadChecked(const YamlNode& node, const Place& place, T& value) {
  UnknownKeys unknown;
  FindUnknownKeys<T>(node, place.key, unknown);
  unknown.Throw();
  ReadValue(node, place, value);
}

// Sets the part of `value` at `path`, all of it where `path` is empty.
template <class T>
void SetValue(const std::vector<std::string>& path, const OverrideValue& given, const Place& place,
              T& value) {
  if (path.empty()) {
    constexpr bool kIsText = std::is_same_v<T, std::string> ||
                             std::is_same_v<T, std::optional<std::string>> || NamedEnum<T>;
    ReadChecked(kIsText ? given.text : RequireYaml(given), place, value);
  } else if constexpr (IsOptional<T>::value) {
    SetValue(path, given, place, value ? *value : value.emplace());
  } else if constexpr (IsList<T>::value) {
    const size_t index = ListIndex(given.text, place.key, path.front(), value.size());
    SetValue({path.begin() + 1, path.end()}, given, {JoinKey(place.key, path.front()), place.rule},
             value[index]);
  } else if constexpr (std::is_class_v<T> && !std::is_same_v<T, std::string>) {
    const std::vector<std::string> known = FieldNames(value);
    bool found = false;
    for (const std::string& name : known) found = found || name == path.front();
    if (!found) FailUnknownKey(given.text, place.key, path.front(), known);
    if constexpr (HasScalarForm<T>) value.automatic = false;
    FieldSetter setter{path, given, place.key};
    value.VisitFields(setter);
  } else {
    FailNoParts(given.text, place.key);
  }
}

}  // namespace internal

template <class Config>
void ReadConfigText(const std::string& name, const std::string& text,
                    const std::vector<Override>& overrides, Config& config) {
  internal::ReadChecked(ParseYaml(text, name), {}, config);
  for (const Override& override : overrides) {
    const internal::OverrideValue given = internal::ParseOverrideValue(override);
    internal::SetValue(internal::SplitKey(override.key), given, {}, config);
  }
}

template <class Config>
void ReadConfig(const std::string& path, const std::vector<Override>& overrides, Config& config) {
  ReadConfigText(path, ReadYamlFile(path), overrides, config);
}

}  // namespace equipoise
