#pragma once

#include <string_view>

#include "data/text/conversation.h"

namespace equipoise {

// Forms in which trainers keep a conversation, told apart by their keys:
//   conversations          LLaVA, InternVL, ShareGPT: [{"from", "value"}…]
//   messages               OpenAI: [{"role", "content"}…], the content text or a list of parts
//   instruction, output    Alpaca: with "input" (behind the instruction, on a line of its own)
//   query, response        ms-swift 2
// and in a record with none of these
//   conversation, texts    ms-swift, the_cauldron: [{"human", "assistant"}…], or "user"
//   prompt, completion     TRL: texts, or lists of messages
// and in one without these either, which HasConversation() leaves out,
//   question, answer       ms-swift's other names: query, prompt, ... and response, output, ...
// Alpaca's and ms-swift 2's may have a "history" [[question, answer]…], and all a "system" text, an
// "id" and pictures in "image" or "images". A turn may call functions ("function_call",
// "tool_calls") and a turn may be a function's result ("observation", "tool"): they become the
// texts that Qwen's template writes, <tool_call> in the assistant's turn and <tool_response> in the
// user's; "tools" describe the functions. A "video" is a file, a folder or a list of its frames
// (record_videos.h).

// Reads a record's id, turns and pictures into `record`, in the order in which they help a message.
// Throws Refusal, and DataError for what is not JSON.
void ReadConversation(std::string_view text, Record& record);
// True for JSON that has one of the first two kinds of forms by its keys.
bool HasConversation(std::string_view text);

}  // namespace equipoise
