#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "configs/base/json.h"
#include "trainer/run/open_data.h"

namespace equipoise {

// A sample to look at: its pictures as the encoder's tiles, and its tokens by loss mask.

// Draws the sample's pictures with half blocks and colours of 24 bits, cut into their tiles.
// Pictures that do not decode are named in their place.
void DrawPictures(const OpenedData& data, int64_t sample, std::ostream& out);

// Writes one HTML page, which needs no other file: facts, tiles, and every token with its id.
// `description` is DescribeSample()'s. Throws RunError when it cannot be written.
void WriteSamplePage(const OpenedData& data, const Json& description, const std::string& path);

}  // namespace equipoise
