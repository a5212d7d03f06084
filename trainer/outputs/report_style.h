#pragma once

#include <string_view>

namespace equipoise {

// The report's style sheet: light and dark, narrow and wide, and for print.
std::string_view ReportStyle();

}  // namespace equipoise
