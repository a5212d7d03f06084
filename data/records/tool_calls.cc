#include "data/records/tool_calls.h"

#include "data/records/refusal.h"

namespace equipoise {
namespace {

using OrderedJson = nlohmann::ordered_json;

// JSON as Python's json.dumps(value, ensure_ascii=False) writes it: a blank behind each comma and
// colon, keys in their order. REQUIRES: nested no deeper than JsonLimits allows.
void Write(const OrderedJson& value, std::string& out) {
  if (!value.is_structured()) {
    out += value.dump();
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
    try {
      ParseJson(text, where + ": arguments");  // its limits and its words for what is wrong
    } catch (const DataError& error) {
      Refuse(Defect::kBadField, error.what());
    }
    arguments = OrderedJson::parse(text);
  }
  if (!arguments.is_object()) refuse();
  std::string out = "<tool_call>\n{\"name\": ";
  Write(call["name"], out);
  out += ", \"arguments\": ";
  Write(arguments, out);
  return out + "}\n</tool_call>";
}

}  // namespace

std::string CallsText(std::string_view calls, const std::string& where) {
  try {
    ParseJson(calls, where);
  } catch (const DataError& error) {
    Refuse(Defect::kBadField, std::string(error.what()) + "; a function's call is JSON");
  }
  const OrderedJson parsed = OrderedJson::parse(calls);
  if (!parsed.is_array()) return CallText(parsed, where);
  std::string text;
  for (const OrderedJson& call : parsed) {
    if (!text.empty()) text += "\n";
    text += CallText(call, where);
  }
  return text;
}

std::string ToolsLines(std::string_view tools) {
  const auto refuse = [] {
    Refuse(
        Defect::kBadField,
        "'tools' is no list of functions, {\"type\": \"function\", \"function\": {\"name\": ...}}, "
        "or its JSON text");
  };
  try {
    ParseJson(tools, "'tools'");
  } catch (const DataError& error) {
    Refuse(Defect::kBadField, error.what());
  }
  OrderedJson parsed = OrderedJson::parse(tools);
  if (!parsed.is_array()) parsed = OrderedJson::array({parsed});
  std::string lines;
  for (const OrderedJson& tool : parsed) {
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
