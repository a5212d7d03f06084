#pragma once

#include <string_view>

namespace equipoise {

// The report's style sheet, for light and dark mode, narrow and wide screens, and print.
std::string_view ReportStyle();

}  // namespace equipoise
