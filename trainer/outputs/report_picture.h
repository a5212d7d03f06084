#pragma once

#include <string>

namespace equipoise {

// A picture file (JPEG or PNG) as a data URI for report.html: the file's bytes if they are few,
// else a PNG scaled down to at most 256 pixels per side. Empty, without an error, for a file that
// is not a readable picture.
std::string PictureDataUri(const std::string& path);

}  // namespace equipoise
