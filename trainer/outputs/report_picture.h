#pragma once

#include <string>
#include <string_view>

namespace at {
class Tensor;
}

namespace equipoise {

// `image`, [height, width, 3] uint8, contiguous, as a PNG in a data URI.
std::string PictureDataUri(const at::Tensor& image);

// A picture file as a data URI for report.html: its bytes if they are few and a browser shows them,
// else a PNG scaled down to at most 256 pixels per side. Empty, without an error, where they are no
// readable picture.
std::string PictureDataUri(std::string_view bytes);

}  // namespace equipoise
