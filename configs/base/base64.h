#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace equipoise {

// Base64 encoding of RFC 4648, with padding.
std::string Base64(std::string_view bytes);

// The bytes of a text in Base64; line ends between its characters are passed over, and padding may
// be left out. Nothing for any other text.
std::optional<std::string> FromBase64(std::string_view text);

}  // namespace equipoise
