#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "configs/base/error.h"

namespace equipoise {

// A YAML document, or a part of it, as plain data: the form between yaml-cpp and configuration
// structs.
struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  std::string text;     // of a scalar
  bool quoted = false;  // a quoted or block scalar: never a number, true, false or null
  // Items of a list, values of a map. `keys` goes with a map's items, in the order of the file; a
  // key is a scalar node, so that it knows its place.
  std::vector<YamlNode> items;
  std::vector<YamlNode> keys;
  // The place of the node: `source:line:column`, or `source` alone (`--set a.b=c`) where line is 0.
  std::shared_ptr<const std::string> source;
  int line = 0;
  int column = 0;

  // That place, as text.
  std::string Where() const;
  // The value of a map's key; null where there is none.
  const YamlNode* Find(std::string_view key) const;
};

// Parses one YAML document; `source` begins its messages, which name no line without `lines` (text
// from the command line). Anchors are expanded, so the tree has no cycles, and its size is bounded.
// Throws ConfigError `source:line:col: what; what to do`.
YamlNode ParseYaml(std::string_view text, const std::string& source, bool lines = true);

// Reads a configuration file. Throws ConfigError when it cannot be read or is larger than 1 MiB.
std::string ReadYamlFile(const std::string& path);

// Writes a tree as YAML, maps in block style and lists of scalars in flow style; ParseYaml() reads
// it back as the same tree.
std::string FormatYaml(const YamlNode& root);

// Writes a scalar as FormatYaml() does: quoted where it must be.
std::string FormatScalar(const YamlNode& scalar);

// Throws ConfigError `WHERE: key: what`, with the place of the node.
[[noreturn]] void FailAt(const YamlNode& node, const std::string& key, const std::string& what);

}  // namespace equipoise
