#pragma once

#include <string>
#include <string_view>

#include "configs/base/json.h"

namespace equipoise {

// Functions' calls and results as Qwen's chat template writes them into a conversation.

// "<tool_call>\n{"name": ..., "arguments": ...}\n</tool_call>" for each call. `calls` is JSON text
// of one call or of a list: {"name", "arguments"}, or an object that holds one under "function";
// the arguments are an object, or its JSON text. Keys keep their order. A thought before the calls,
// <think> to </think>, stays there, and calls that are in <tool_call> already stay as they are.
// `where` names the turn. Throws Refusal.
std::string CallsText(std::string_view calls, const std::string& where);

// The descriptions of functions in JSON text, of a list or of one: each on a line, as
// {"type": "function", "function": {...}}, which a bare {"name", ...} is wrapped in. Keys keep
// their order. Throws Refusal.
std::string ToolsLines(std::string_view tools);

// JSON as Python's json.dumps(value, ensure_ascii=False) writes it: a blank behind each comma and
// colon, keys in their order. REQUIRES: nested no deeper than JsonLimits allows.
std::string PythonJson(const nlohmann::ordered_json& value);

// "<tool_response>\n" + result + "\n</tool_response>".
std::string ResultText(const std::string& result);

}  // namespace equipoise
