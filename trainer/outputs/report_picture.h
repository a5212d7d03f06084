#pragma once

#include <string>

namespace equipoise {

// A picture file (JPEG or PNG) as a data URI for report.html: its own bytes where they are few,
// else scaled down to at most 256 pixels a side and written as PNG. Empty for a file that is no
// readable picture: a report is no place to fail.
std::string PictureDataUri(const std::string& path);

}  // namespace equipoise
