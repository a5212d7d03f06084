#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "configs/base/error.h"

namespace equipoise {

// A YAML document as plain data: what stands between yaml-cpp and the configuration structs.
struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  std::string text;     // of a scalar
  bool quoted = false;  // a quoted or block scalar: never a number, true, false or null
  // Items of a list, values of a map. `keys` goes with a map's items, in the order of the file; a
  // key is a scalar node, so that it knows its place.
  std::vector<YamlNode> items;
  std::vector<YamlNode> keys;
  // Where the node stands: `file:line:column`, or `--set a.b=c` as it stands when line is 0.
  std::shared_ptr<const std::string> source;
  int line = 0;
  int column = 0;

  std::string Where() const;
  // The value of a key, or null.
  const YamlNode* Find(std::string_view key) const;
};

// Parses one YAML document; `source` begins its messages. Without `lines`, messages name no line
// (text from the command line). Anchors are expanded, so the tree has no cycles and a bounded size.
// Throws ConfigError: `source:line:col: what; what to do`.
YamlNode ParseYaml(std::string_view text, const std::string& source, bool lines = true);

// The text of a file. Throws ConfigError when it cannot be read or is larger than a configuration
// may be (1 MiB).
std::string ReadYamlFile(const std::string& path);

// Block-style YAML text that ParseYaml() reads back as the same tree.
std::string FormatYaml(const YamlNode& root);

// A scalar as FormatYaml() writes it: quoted where it must be.
std::string FormatScalar(const YamlNode& scalar);

// Throws ConfigError `where: key: what`.
[[noreturn]] void FailAt(const YamlNode& node, const std::string& key, const std::string& what);

}  // namespace equipoise
