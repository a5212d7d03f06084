#pragma once

#include <string>
#include <string_view>

namespace equipoise {

// Text that comes from a file, as it may stand in a message or on a terminal: on one line, with
// control characters, marks that turn the direction of writing, and bytes that are no UTF-8 as
// escapes (\n, \x1b, \u202e); cut behind `most` bytes, with "..." in place of the rest.
std::string ShownText(std::string_view text, size_t most = 200);

// The same without a limit, and with line ends and tabs as they are: for texts of our own in which
// such a value may stand.
std::string TerminalText(std::string_view text);

// Length of the well-formed UTF-8 sequence at the start, or 0. Control characters other than tab
// and line ends count as ill-formed. REQUIRES: text is not empty.
size_t SequenceLength(std::string_view text);

}  // namespace equipoise
