#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "configs/yaml/yaml_tree.h"

namespace equipoise {
namespace {

// Words that some YAML reader does not read as text.
constexpr std::array<const char*, 10> kReserved = {"null", "true", "false", "yes", "no",
                                                   "on",   "off",  "y",     "n",   "~"};

bool NeedsQuotes(const std::string& text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto is_plain = [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '/' || c == '-' ||
           c == '+';
  };
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_plain)) return true;
  const bool path = text[0] == '/' || text.starts_with("./") || text.starts_with("../");
  if (!is_letter(text[0]) && text[0] != '_' && !path) return true;
  std::string lower = text;
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::find(kReserved.begin(), kReserved.end(), lower) != kReserved.end();
}

std::string Quote(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f) {
          out += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

bool FitsOneLine(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kMap) return node.items.empty();
  return std::all_of(node.items.begin(), node.items.end(), FitsOneLine);
}

std::string OneLine(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kNull) return "null";
  if (node.kind == YamlNode::Kind::kScalar) return FormatScalar(node);
  if (node.kind == YamlNode::Kind::kMap) return "{}";
  std::string out = "[";
  for (const YamlNode& item : node.items) out += (out.size() > 1 ? ", " : "") + OneLine(item);
  return out + "]";
}

// Appends a list or map whose first line begins at the current column, which is `indent`.
void AppendBlock(const YamlNode& node, size_t indent, std::string& out) {
  const std::string margin(indent, ' ');
  for (size_t i = 0; i < node.items.size(); ++i) {
    const YamlNode& item = node.items[i];
    if (i > 0) out += margin;
    if (node.kind == YamlNode::Kind::kList) {
      out += "- ";
      if (FitsOneLine(item)) {
        out += OneLine(item) + "\n";
      } else {
        AppendBlock(item, indent + 2, out);
      }
    } else if (FitsOneLine(item)) {
      out += FormatScalar(node.keys[i]) + ": " + OneLine(item) + "\n";
    } else {
      out += FormatScalar(node.keys[i]) + ":\n" + std::string(indent + 2, ' ');
      AppendBlock(item, indent + 2, out);
    }
  }
}

}  // namespace

std::string FormatScalar(const YamlNode& scalar) {
  return scalar.quoted && NeedsQuotes(scalar.text) ? Quote(scalar.text) : scalar.text;
}

std::string FormatYaml(const YamlNode& root) {
  if (FitsOneLine(root)) return OneLine(root) + "\n";
  std::string out;
  AppendBlock(root, 0, out);
  return out;
}

}  // namespace equipoise
