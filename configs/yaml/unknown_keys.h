#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "configs/yaml/fields.h"
#include "configs/yaml/yaml_tree.h"

namespace equipoise::internal {

std::string JoinKey(const std::string& parent, const std::string& name);

struct NameCollector {
  std::vector<std::string> names;
  template <class T>
  void operator()(const char* name, T&, const char*, const Rule& = {}) {
    names.push_back(name);
  }
};

template <class Config>
std::vector<std::string> FieldNames(Config& config) {
  NameCollector collector;
  config.VisitFields(collector);
  return collector.names;
}

// The unknown keys of a document, all of which one message names: a file of another trainer has
// dozens.
class UnknownKeys {
 public:
  // Adds those of a map at `parent` whose keys are `known`.
  void Add(const YamlNode& map, const std::string& parent, const std::vector<std::string>& known);
  // Throws ConfigError where there are any.
  void Throw();

 private:
  struct Key {
    const YamlNode* node;
    std::string parent;
    std::vector<std::string> known;
  };
  std::vector<Key> first_;
  size_t count_ = 0;
};

[[noreturn]] void FailUnknownKey(const YamlNode& node, const std::string& parent,
                                 const std::string& name, const std::vector<std::string>& known);

template <class T>
void FindUnknownKeys(const YamlNode& node, const std::string& key, UnknownKeys& unknown);

struct UnknownKeyFinder {
  const YamlNode& map;
  const std::string& parent;
  UnknownKeys& unknown;
  template <class T>
  void operator()(const char* name, T&, const char*, const Rule& = {}) {
    const YamlNode* node = map.Find(name);
    if (node != nullptr) FindUnknownKeys<T>(*node, JoinKey(parent, name), unknown);
  }
};

// Adds the unknown keys in a node that is to become a T. Parts of a wrong kind are passed over.
template <class T>
void FindUnknownKeys(const YamlNode& node, const std::string& key, UnknownKeys& unknown) {
  if constexpr (IsOptional<T>::value) {
    FindUnknownKeys<typename T::value_type>(node, key, unknown);
  } else if constexpr (IsList<T>::value) {
    if (node.kind != YamlNode::Kind::kList) return;
    for (size_t i = 0; i < node.items.size(); ++i) {
      FindUnknownKeys<typename T::value_type>(node.items[i], JoinKey(key, std::to_string(i)),
                                              unknown);
    }
  } else if constexpr (std::is_class_v<T> && !std::is_same_v<T, std::string>) {
    if (node.kind != YamlNode::Kind::kMap) return;
    T value{};
    unknown.Add(node, key, FieldNames(value));
    UnknownKeyFinder finder{node, key, unknown};
    value.VisitFields(finder);
  }
}

}  // namespace equipoise::internal
