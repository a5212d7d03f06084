#include "data/records/tool_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/records/refusal.h"

namespace equipoise {
namespace {

using OrderedJson = nlohmann::ordered_json;
constexpr std::string_view kSpace = " \t\r\n";

// PythonJson()
void Write(const OrderedJson& value, std::string& out) {
  if (!value.is_structured()) {
    // Python writes no exponent below 1e16, the library from 1e15 on.
    const double number = value.is_number_float() ? std::abs(value.get<double>()) : 0;
    const bool whole = 1e15 <= number && number < 1e16;
    out += whole ? fmt::format("{:.1f}", value.get<double>()) : value.dump();
    return;
  }
  const bool object = value.is_object();
  out += object ? '{' : '[';
  bool first = true;
  for (const auto& [key, item] : value.items()) {
    if (!first) out += ", ";
    first = false;
    if (object) out += OrderedJson(key).dump() + ": ";
    Write(item, out);
  }
  out += object ? '}' : ']';
}

// The text itself, which is JSON within the limits of ParseJson().
std::string_view CheckedJson(std::string_view text, const std::string& source) {
  try {
    ParseJson(text, source);
  } catch (const DataError& error) {
    Refuse(Defect::kBadField, error.what());
  }
  return text;
}

std::string CallText(const OrderedJson& given, const std::string& where) {
  const OrderedJson& call =
      given.is_object() && given.contains("function") ? given["function"] : given;
  const auto refuse = [&] {
    Refuse(
        Defect::kBadField,
        where + ": a function's call is {\"name\": text, \"arguments\": object or its JSON text}");
  };
  if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) refuse();
  OrderedJson arguments = call.value("arguments", OrderedJson::object());
  if (arguments.is_string()) {
    const std::string text = arguments.get<std::string>();
    arguments = OrderedJson::parse(CheckedJson(text, where + ": arguments"));
  }
  if (!arguments.is_object()) refuse();
  std::string out = "<tool_call>\n{\"name\": ";
  Write(call["name"], out);
  out += ", \"arguments\": ";
  Write(arguments, out);
  return out + "}\n</tool_call>";
}

// The length of a thought before the calls, <think> to </think> and white space behind it.
size_t ThoughtIn(std::string_view calls) {
  constexpr std::string_view kBegin = "<think>", kEnd = "</think>";
  const size_t begin = calls.find_first_not_of(kSpace);
  if (begin == calls.npos || !calls.substr(begin).starts_with(kBegin)) return 0;
  const size_t end = calls.find(kEnd, begin);
  if (end == calls.npos) return 0;
  return std::min(calls.find_first_not_of(kSpace, end + kEnd.size()), calls.size());
}

}  // namespace

std::string CallsText(std::string_view given, const std::string& where) {
  const size_t thought = ThoughtIn(given);
  const std::string_view calls = given.substr(thought);
  const size_t first = std::min(calls.find_first_not_of(kSpace), calls.size());
  if (calls.substr(first).starts_with("<tool_call>")) return std::string(given);
  try {
    ParseJson(calls, where);
  } catch (const DataError& error) {
    Refuse(Defect::kBadField, std::string(error.what()) + "; a function's call is JSON");
  }
  const OrderedJson parsed = OrderedJson::parse(calls);
  std::string text(given.substr(0, thought));
  if (!parsed.is_array()) return text + CallText(parsed, where);
  for (size_t i = 0; i < parsed.size(); ++i) {
    if (i > 0) text += "\n";
    text += CallText(parsed[i], where);
  }
  return text;
}

std::string PythonJson(const OrderedJson& value) {
  std::string out;
  Write(value, out);
  return out;
}

std::string ToolsLines(std::string_view tools) {
  const auto refuse = [] {
    Refuse(
        Defect::kBadField,
        "'tools' is no list of functions, {\"type\": \"function\", \"function\": {\"name\": ...}}, "
        "or its JSON text");
  };
  OrderedJson parsed = OrderedJson::parse(CheckedJson(tools, "'tools'"));
  if (!parsed.is_array()) parsed = OrderedJson::array({parsed});
  std::string lines;
  for (OrderedJson& tool : parsed) {
    if (tool.is_string())
      tool = OrderedJson::parse(CheckedJson(tool.get<std::string>(), "'tools'"));
    if (!tool.is_object()) refuse();
    const bool whole = tool.contains("function");
    const OrderedJson& function = whole ? tool["function"] : tool;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
      refuse();
    if (!lines.empty()) lines += "\n";
    if (whole) {
      Write(tool, lines);
    } else {
      lines += "{\"type\": \"function\", \"function\": ";
      Write(tool, lines);
      lines += "}";
    }
  }
  return lines;
}

std::string ResultText(const std::string& result) {
  return "<tool_response>\n" + result + "\n</tool_response>";
}

}  // namespace equipoise
