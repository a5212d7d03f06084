#pragma once

#include <string>

namespace at {
class Tensor;
}

namespace equipoise {

// `image`, [height, width, 3] uint8, contiguous, as a PNG in a data URI.
std::string PictureDataUri(const at::Tensor& image);

// A picture file as a data URI for report.html: the file's bytes if they are few
// and a browser shows them, else a PNG scaled down to at most 256 pixels per side. Empty, without
// an error, for a file that is not a readable picture.
std::string PictureDataUri(const std::string& path);

}  // namespace equipoise
