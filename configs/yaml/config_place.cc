#include "configs/yaml/config_place.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <system_error>

#include "configs/base/error.h"
#include "configs/base/shown_text.h"
#include "configs/yaml/yaml_reader.h"
#include "configs/yaml/yaml_tree.h"

namespace equipoise {
namespace {

// The dotted key at the start of a message; "" where there is none.
std::string KeyOf(const std::string& message) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_.";
  const size_t end = message.find_first_not_of(kLetters);
  if (end == std::string::npos || end == 0 || (message[end] != ':' && message[end] != ' '))
    return "";
  const std::string key = message.substr(0, end);
  return key.find('.') == std::string::npos ? "" : key;
}

// The item of a list that a part of a key numbers; null where there is none.
const YamlNode* ItemOf(const YamlNode& list, const std::string& part) {
  size_t index = 0;
  const auto end = std::from_chars(part.data(), part.data() + part.size(), index);
  const bool number = end.ec == std::errc() && end.ptr == part.data() + part.size();
  return number && index < list.items.size() ? &list.items[index] : nullptr;
}

// The place of a key in a document, or of the item of a list that lacks it; "" where the document
// does not give it.
std::string PlaceIn(const YamlNode& document, const std::string& key) {
  const YamlNode* node = &document;
  const YamlNode* name = nullptr;
  const YamlNode* item = nullptr;
  for (const std::string& part : internal::SplitKey(key)) {
    if (node->kind == YamlNode::Kind::kList) {
      item = name = node = ItemOf(*node, part);
      if (node == nullptr) return "";
      continue;
    }
    size_t at = 0;
    while (at < node->keys.size() && node->keys[at].text != part) ++at;
    if (at == node->keys.size()) return item == nullptr ? "" : item->Where();
    name = &node->keys[at];
    node = &node->items[at];
  }
  return name == nullptr ? "" : name->Where();
}

}  // namespace

std::string WithPlace(const std::string& message, const std::string& path,
                      const std::vector<std::string>& settings) {
  const std::string key = KeyOf(message);
  if (key.empty()) return message;
  for (auto setting = settings.rbegin(); setting != settings.rend(); ++setting) {
    const std::string name = setting->substr(0, setting->find('='));
    if (name == key || name.starts_with(key + ".") || key.starts_with(name + ".")) {
      return fmt::format("--set {}: {}", ShownText(*setting), message);
    }
  }
  try {
    const std::string place = PlaceIn(ParseYaml(ReadYamlFile(path), path), key);
    return place.empty() ? message : fmt::format("{}: {}", place, message);
  } catch (const ConfigError&) {
    return message;
  }
}

}  // namespace equipoise
