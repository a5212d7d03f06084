#include "configs/yaml/yaml_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "configs/base/nearest.h"
#include "configs/base/shown_text.h"
#include "configs/yaml/familiar_names.h"

namespace equipoise {
namespace {

// A node in a message: on one line, and truncated.
std::string Shown(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kList:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a map";
    case YamlNode::Kind::kScalar:
      break;
  }
  return fmt::format("'{}'", ShownText(node.text, 60));
}

bool IsOneOf(const std::string& text, const std::vector<std::string>& choices) {
  return std::find(choices.begin(), choices.end(), text) != choices.end();
}

// The shortest text of a rule's bound: 4294967295, 0.5.
std::string NumberText(double number) {
  char text[32];
  const bool whole = number == std::floor(number) && std::abs(number) < 1e15;
  const auto end = whole ? std::to_chars(text, text + sizeof(text), static_cast<int64_t>(number))
                         : std::to_chars(text, text + sizeof(text), number);
  return std::string(text, end.ptr);
}

void CheckRange(const YamlNode& node, const internal::Place& place, double value) {
  const Rule& rule = place.rule;
  if (rule.min && value < *rule.min) {
    FailAt(node, place.key,
           fmt::format("{} is too small; the least is {}", node.text, NumberText(*rule.min)));
  }
  if (rule.max && value > *rule.max) {
    FailAt(node, place.key,
           fmt::format("{} is too large; the most is {}", node.text, NumberText(*rule.max)));
  }
}

void RequireScalar(const YamlNode& node, const std::string& key, const std::string& wanted) {
  if (node.kind == YamlNode::Kind::kScalar) return;
  FailAt(node, key, fmt::format("{} where {} belongs; write one value", Shown(node), wanted));
}

// Throws unless the node is an unquoted scalar, as numbers and booleans are.
void RequirePlain(const YamlNode& node, const std::string& key, const std::string& wanted) {
  RequireScalar(node, key, wanted);
  if (!node.quoted) return;
  FailAt(node, key,
         fmt::format("{} is quoted, so it is text and not {}; remove the quotes", Shown(node),
                     wanted));
}

bool IsDigits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string_view WithoutSign(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return text;
}

// The plain digits of a whole number in another form (1_000, 0x10, 1e3, 1.0, 010); "" for any other
// text.
std::string PlainInteger(const std::string& text) {
  std::string digits;
  for (const char c : text) {
    if (c != '_' && c != ',') digits += c;
  }
  const std::string_view body = WithoutSign(digits);
  int64_t whole = 0;
  if (body.size() > 2 && body[0] == '0' && (body[1] == 'x' || body[1] == 'X')) {
    const auto end = std::from_chars(body.data() + 2, body.data() + body.size(), whole, 16);
    if (end.ec != std::errc() || end.ptr != body.data() + body.size()) return "";
  } else {
    double number = 0;
    const auto end = std::from_chars(body.data(), body.data() + body.size(), number);
    const bool exact = number == std::floor(number) && std::abs(number) < 9e15;
    if (end.ec != std::errc() || end.ptr != body.data() + body.size() || !exact) return "";
    whole = static_cast<int64_t>(number);
  }
  return fmt::format("{}{}", digits[0] == '-' ? "-" : "", whole);
}

[[noreturn]] void FailInteger(const YamlNode& node, const std::string& key) {
  const std::string plain = PlainInteger(node.text);
  FailAt(node, key,
         fmt::format("{} is not a whole number; write {}", Shown(node),
                     plain.empty() ? "digits alone, such as 16" : plain));
}

// Whether a text is a decimal number: digits, at most one point and one exponent; no leading zero,
// hexadecimal, inf or nan.
bool IsDecimal(std::string_view text) {
  text = WithoutSign(text);
  const size_t exponent = text.find_first_of("eE");
  if (exponent != std::string_view::npos) {
    if (!IsDigits(WithoutSign(text.substr(exponent + 1)))) return false;
    text = text.substr(0, exponent);
  }
  const size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  const std::string_view part =
      point == std::string_view::npos ? std::string_view() : text.substr(point + 1);
  if (whole.empty() && part.empty()) return false;
  if (whole.size() > 1 && whole[0] == '0') return false;
  return (whole.empty() || IsDigits(whole)) && (part.empty() || IsDigits(part));
}

}  // namespace

Override ParseOverride(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw ConfigError(fmt::format(
        "--set {}: no key and value; write --set key=value, such as --set train.steps=100", text));
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

namespace internal {

void ReadScalar(const YamlNode& node, const Place& place, bool& value) {
  RequirePlain(node, place.key, "true or false");
  if (node.text != "true" && node.text != "false") {
    const char* way = IsOneOf(node.text, {"True", "TRUE", "yes", "on", "1"})     ? "true"
                      : IsOneOf(node.text, {"False", "FALSE", "no", "off", "0"}) ? "false"
                                                                                 : "true or false";
    FailAt(node, place.key,
           fmt::format("{} is neither true nor false; write {}", Shown(node), way));
  }
  value = node.text == "true";
}

void ReadScalar(const YamlNode& node, const Place& place, int64_t& value) {
  RequirePlain(node, place.key, "a whole number");
  const std::string_view digits = WithoutSign(node.text);
  const bool doubtful = digits.size() > 1 && digits[0] == '0';
  if (!IsDigits(digits) || doubtful) FailInteger(node, place.key);
  const char* begin = node.text.data() + (node.text[0] == '+' ? 1 : 0);
  if (std::from_chars(begin, node.text.data() + node.text.size(), value).ec != std::errc()) {
    FailAt(node, place.key,
           fmt::format("{} does not fit 64 bits; write a number between {} and {}", Shown(node),
                       std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()));
  }
  CheckRange(node, place, static_cast<double>(value));
}

void ReadScalar(const YamlNode& node, const Place& place, double& value) {
  RequirePlain(node, place.key, "a number");
  if (!IsDecimal(node.text)) {
    const bool comma = node.text.find(',') != std::string::npos;  // 0,5 is not 5
    const std::string plain = comma ? "" : PlainInteger(node.text);
    FailAt(node, place.key,
           fmt::format("{} is not a finite decimal number; write {}", Shown(node),
                       plain.empty() ? "one such as 0.5 or 1e-4" : plain));
  }
  const char* begin = node.text.data() + (node.text[0] == '+' ? 1 : 0);
  if (std::from_chars(begin, node.text.data() + node.text.size(), value).ec != std::errc()) {
    FailAt(node, place.key,
           fmt::format("{} does not fit a double; write a number between 1e-307 and 1e307 in size",
                       Shown(node)));
  }
  CheckRange(node, place, value);
}

void ReadScalar(const YamlNode& node, const Place& place, std::string& value) {
  if (node.kind == YamlNode::Kind::kNull) {
    FailAt(node, place.key, "no value; write text, or \"\" for none");
  }
  RequireScalar(node, place.key, "text");
  if (node.text.starts_with("~/") || node.text.starts_with("$HOME") ||
      node.text.starts_with("${")) {
    FailAt(
        node, place.key,
        fmt::format("{} stands as it is, without the shell; write the path itself", Shown(node)));
  }
  const std::vector<std::string>& choices = place.rule.choices;
  if (!choices.empty() && !IsOneOf(node.text, choices)) {
    std::string way = FamiliarValue(place.key, node.text);
    const std::string near = way.empty() ? NearestName(node.text, choices) : "";
    if (way.empty()) way = near.empty() ? "choose one" : fmt::format("did you mean '{}'?", near);
    FailAt(node, place.key,
           fmt::format("{} is not one of {}; {}", Shown(node), fmt::join(choices, ", "), way));
  }
  value = node.text;
}

void RequireList(const YamlNode& node, const Place& place, const std::string& first_key) {
  if (node.kind == YamlNode::Kind::kList) return;
  const std::string scalar = FormatScalar(node);
  const std::string item =
      first_key.empty() ? scalar : fmt::format("{{{}: {}}}", first_key, scalar);
  const std::string way = node.kind == YamlNode::Kind::kScalar ? fmt::format("[{}]", item)
                          : node.kind == YamlNode::Kind::kNull ? "[]"
                                                               : "a '-' before each item";
  FailAt(node, place.key, fmt::format("{} where a list belongs; write {}", Shown(node), way));
}

bool RequireMap(const YamlNode& node, const Place& place, const std::vector<std::string>& known,
                const char* scalar_form) {
  if (node.kind == YamlNode::Kind::kNull) return false;
  if (scalar_form != nullptr && node.kind == YamlNode::Kind::kScalar && node.text == scalar_form) {
    return true;
  }
  if (node.kind != YamlNode::Kind::kMap) {
    const std::string form = scalar_form == nullptr ? "" : fmt::format("{} or ", scalar_form);
    const std::string what = fmt::format("{} where a map belongs; write {}keys: {}", Shown(node),
                                         form, fmt::join(known, ", "));
    if (place.key.empty()) throw ConfigError(fmt::format("{}: {}", node.Where(), what));
    FailAt(node, place.key, what);
  }
  return false;
}

void FailNoParts(const YamlNode& node, const std::string& key) {
  FailAt(node, key, fmt::format("is one value and has no keys; write --set {}=VALUE", key));
}

size_t ListIndex(const YamlNode& node, const std::string& key, const std::string& name,
                 size_t size) {
  size_t index = 0;
  const auto end = std::from_chars(name.data(), name.data() + name.size(), index);
  const bool number = end.ec == std::errc() && end.ptr == name.data() + name.size();
  if (number && index < size) return index;
  FailAt(node, JoinKey(key, name),
         fmt::format("{}; {} {}", number ? "no such item" : "not the number of an item", key,
                     size == 0 ? fmt::format("is empty, write --set {}=[...]", key)
                               : fmt::format("has the items 0 to {}", size - 1)));
}

std::vector<std::string> SplitKey(const std::string& key) {
  std::vector<std::string> parts;
  size_t start = 0;
  for (size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', start)) {
    parts.push_back(key.substr(start, dot - start));
    start = dot + 1;
  }
  parts.push_back(key.substr(start));
  return parts;
}

OverrideValue ParseOverrideValue(const Override& override) {
  const std::string source = fmt::format("--set {}={}", override.key, ShownText(override.value));
  OverrideValue given;
  try {
    given.yaml = ParseYaml(override.value, source, /*lines=*/false);
  } catch (const ConfigError& error) {
    given.problem = error.what();
  }
  const bool as_yaml =
      given.problem.empty() && (given.yaml.quoted || given.yaml.kind == YamlNode::Kind::kNull);
  if (as_yaml) {
    given.text = given.yaml;
  } else {
    given.text.kind = YamlNode::Kind::kScalar;
    given.text.text = override.value;
    given.text.source = std::make_shared<const std::string>(source);
  }
  return given;
}

const YamlNode& RequireYaml(const OverrideValue& value) {
  if (!value.problem.empty()) throw ConfigError(value.problem);
  return value.yaml;
}

}  // namespace internal
}  // namespace equipoise
