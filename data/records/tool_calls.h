#pragma once

#include <string>
#include <string_view>

#include "configs/base/json.h"

namespace equipoise {

// Functions' calls and results as Qwen's chat template writes them into a conversation.

// "<tool_call>\n{"name": ..., "arguments": ...}\n</tool_call>" for each call. `calls` is JSON text
// of one call or of a list: {"name", "arguments"}, or an object that holds one under "function";
// the arguments are an object, or its JSON text. Keys keep their order. `where` names the turn.
// Throws Refusal.
std::string CallsText(std::string_view calls, const std::string& where);

// The descriptions of functions in JSON text, of a list or of one: each on a line, as
// {"type": "function", "function": {...}}, which a bare {"name", ...} is wrapped in. Keys keep
// their order. Throws Refusal.
std::string ToolsLines(std::string_view tools);

// "<tool_response>\n" + result + "\n</tool_response>".
std::string ResultText(const std::string& result);

}  // namespace equipoise
