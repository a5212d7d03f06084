#include "configs/yaml/yaml_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace equipoise::internal {
namespace {

YamlNode PlainNode(std::string text) {
  YamlNode node;
  node.kind = YamlNode::Kind::kScalar;
  node.text = std::move(text);
  return node;
}

// The shortest text that reads back as the same number.
std::string DoubleText(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

std::string RuleText(const Rule& rule) {
  if (!rule.choices.empty()) {
    return fmt::format("{}", fmt::join(rule.choices, " | "));
  }
  const auto number = [](double value) {
    const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
    return whole ? fmt::to_string(static_cast<int64_t>(value)) : DoubleText(value);
  };
  if (rule.min && rule.max) return fmt::format("{} to {}", number(*rule.min), number(*rule.max));
  if (rule.min) return fmt::format("at least {}", number(*rule.min));
  if (rule.max) return fmt::format("at most {}", number(*rule.max));
  return "";
}

// Appends words, wrapped before column 100, later lines indented.
void AppendWrapped(const std::string& text, size_t column, std::string& out) {
  constexpr size_t kColumns = 100, kIndent = 6;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find(' ', start), text.size());
    const std::string word = text.substr(start, end - start);
    if (column + 1 + word.size() > kColumns) {
      out += "\n" + std::string(kIndent, ' ') + word;
      column = kIndent + word.size();
    } else {
      out += (column == 0 ? "" : " ") + word;
      column += word.size() + (column == 0 ? 0 : 1);
    }
    start = end + 1;
  }
}

}  // namespace

YamlNode ScalarNode(bool value) { return PlainNode(value ? "true" : "false"); }
YamlNode ScalarNode(int64_t value) { return PlainNode(std::to_string(value)); }
YamlNode ScalarNode(double value) { return PlainNode(DoubleText(value)); }
YamlNode ScalarNode(const char* word) { return PlainNode(word); }

YamlNode ScalarNode(const std::string& value) {
  YamlNode node = PlainNode(value);
  node.quoted = true;
  return node;
}

YamlNode ContainerNode(YamlNode::Kind kind) {
  YamlNode node;
  node.kind = kind;
  return node;
}

void AddField(YamlNode& map, const char* name, YamlNode value) {
  map.keys.push_back(PlainNode(name));
  map.items.push_back(std::move(value));
}

// Both trees come from the same struct, so maps have the same keys.
void AppendDiffering(const YamlNode& a, const YamlNode& b, const std::string& key,
                     std::vector<std::string>& keys) {
  if (a.kind != b.kind || a.text != b.text || a.items.size() != b.items.size()) {
    keys.push_back(key);
    return;
  }
  for (size_t i = 0; i < a.items.size(); ++i) {
    const bool map = a.kind == YamlNode::Kind::kMap;
    AppendDiffering(a.items[i], b.items[i], JoinKey(key, map ? a.keys[i].text : std::to_string(i)),
                    keys);
  }
}

std::string FormatHelp(const std::vector<HelpEntry>& entries) {
  std::string out;
  for (const HelpEntry& entry : entries) {
    const std::string rule = RuleText(entry.rule);
    std::string line = entry.key + (entry.value.empty() ? ":" : ": " + entry.value);
    line.resize(std::max<size_t>(line.size(), 34), ' ');
    const size_t column = line.size();
    AppendWrapped(rule.empty() ? entry.help : fmt::format("{} ({})", entry.help, rule), column,
                  line);
    out += line + "\n";
  }
  return out;
}

}  // namespace equipoise::internal
