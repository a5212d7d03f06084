#pragma once

#include <string>
#include <string_view>

namespace equipoise {

// Escapes text from a file for a message or a terminal: on one line, with control characters, marks
// that change the direction of writing, and bytes that are not UTF-8 as escapes (\n, \x1b, \u202e);
// truncated after `most` bytes, with "..." in place of the rest.
std::string ShownText(std::string_view text, size_t most = 200);

// ShownText() without a limit, and with line ends and tabs kept: for texts of our own that may
// contain such a value.
std::string TerminalText(std::string_view text);

// A word that a shell reads as `text`, for commands in messages: in single quotes where it is empty
// or has other characters than plain names and paths.
std::string ShellWord(std::string_view text);

// Bytes of the well-formed UTF-8 sequence at the start of a text, or 0. Control characters other
// than tab and line ends count as ill-formed. REQUIRES: text is not empty.
size_t SequenceLength(std::string_view text);

}  // namespace equipoise
