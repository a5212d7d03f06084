#pragma once

#include <string>
#include <vector>

#include "configs/yaml/fields.h"
#include "configs/yaml/yaml_reader.h"
#include "configs/yaml/yaml_tree.h"

namespace equipoise {

// Writes a configuration as YAML, all of its keys; reading it back gives an equal configuration.
template <class Config>
std::string WriteConfig(const Config& config);

// Whether all keys of two configurations are equal.
template <class Config>
bool EqualConfig(const Config& a, const Config& b);

// Dotted keys of the values that differ, in the order of the fields; a list is one value where its
// lengths differ.
template <class Config>
std::vector<std::string> DifferingKeys(const Config& a, const Config& b);

// The text of --help: every key with its default, rule and help. Fields of a list's structs are
// shown as `data.train.0.repeat`.
template <class Config>
std::string HelpText(const Config& defaults);

namespace internal {

YamlNode ScalarNode(bool value);
YamlNode ScalarNode(int64_t value);
YamlNode ScalarNode(double value);
YamlNode ScalarNode(const std::string& value);
YamlNode ScalarNode(const char* word);  // an unquoted word
YamlNode ContainerNode(YamlNode::Kind kind);
void AddField(YamlNode& map, const char* name, YamlNode value);
void AppendDiffering(const YamlNode& a, const YamlNode& b, const std::string& key,
                     std::vector<std::string>& keys);

struct HelpEntry {
  std::string key;
  std::string value;  // default as YAML text; "" for a struct
  std::string help;
  Rule rule;
};
std::string FormatHelp(const std::vector<HelpEntry>& entries);

template <class T>
constexpr bool kIsStruct = std::is_class_v<T> && !std::is_same_v<T, std::string> &&
                           !IsOptional<T>::value && !IsList<T>::value;

template <class T>
YamlNode ToTree(T& value);

struct MapBuilder {
  YamlNode map;
  template <class T>
  void operator()(const char* name, T& value, const char*, const Rule& = {}) {
    AddField(map, name, ToTree(value));
  }
};

// VisitFields is not const, so neither are these; they change nothing.
template <class T>
YamlNode ToTree(T& value) {
  if constexpr (IsOptional<T>::value) {
    return value ? ToTree(*value) : YamlNode{};
  } else if constexpr (IsList<T>::value) {
    YamlNode list = ContainerNode(YamlNode::Kind::kList);
    for (auto&& item : value) list.items.push_back(ToTree(item));
    return list;
  } else if constexpr (kIsStruct<T>) {
    if constexpr (HasScalarForm<T>) {
      if (value.automatic) return ScalarNode(T::kScalarForm);
    }
    MapBuilder builder{ContainerNode(YamlNode::Kind::kMap)};
    value.VisitFields(builder);
    return builder.map;
  } else if constexpr (NamedEnum<T>) {
    return ScalarNode(ToString(value));
  } else {
    return ScalarNode(value);
  }
}

struct HelpCollector {
  std::string parent;
  std::vector<HelpEntry>& entries;

  template <class T>
  void operator()(const char* name, T& value, const char* help, const Rule& given = {}) {
    const Rule rule = RuleOf<T>(given);
    const std::string key = JoinKey(parent, name);
    if constexpr (kIsStruct<T>) {
      entries.push_back({key, HasScalarForm<T> ? Value(value) : "", help, rule});
      Descend(key, value);
    } else {
      entries.push_back({key, Value(value), help, rule});
      if constexpr (IsList<T>::value) {
        if constexpr (kIsStruct<typename T::value_type>) {
          typename T::value_type item{};
          Descend(key + ".0", item);
        }
      }
    }
  }

 private:
  template <class T>
  void Descend(const std::string& key, T& value) {
    HelpCollector inner{key, entries};
    value.VisitFields(inner);
  }

  template <class T>
  static std::string Value(T& value) {
    YamlNode tree = ToTree(value);
    if (tree.kind == YamlNode::Kind::kMap) return "";
    std::string text = FormatYaml(tree);
    text.pop_back();
    return text;
  }
};

}  // namespace internal

template <class Config>
std::string WriteConfig(const Config& config) {
  Config copy = config;
  return FormatYaml(internal::ToTree(copy));
}

template <class Config>
std::vector<std::string> DifferingKeys(const Config& a, const Config& b) {
  Config first = a, second = b;
  std::vector<std::string> keys;
  internal::AppendDiffering(internal::ToTree(first), internal::ToTree(second), "", keys);
  return keys;
}

template <class Config>
bool EqualConfig(const Config& a, const Config& b) {
  return DifferingKeys(a, b).empty();
}

template <class Config>
std::string HelpText(const Config& defaults) {
  Config copy = defaults;
  std::vector<internal::HelpEntry> entries;
  internal::HelpCollector collector{"", entries};
  copy.VisitFields(collector);
  return internal::FormatHelp(entries);
}

}  // namespace equipoise
