#pragma once

#include <cstdint>

#include "configs/base/json.h"
#include "models/spec/image_spec.h"

namespace equipoise {

// Requires the settings of an image or video processor to have the steps that pictures and frames
// go through here: a bicubic resize, numbers between 0 and 1, normalization. Absent keys do. Where
// `bilinear` is given, that resize is allowed too, and told. `file` names the processor. Throws
// DataError (`FILE: key: what; what to do`).
void RequireKnownSteps(const Json& json, const char* file, bool* bilinear = nullptr);

// Requires a side of `size` or `crop_size`, a number, {"shortest_edge"} or {"height", "width"}, to
// be the encoder's. An absent key does. Throws DataError.
void RequireSide(const Json& json, const char* key, int64_t side, const char* file);

// Takes image_mean and image_std where they are given. Throws DataError.
void ReadNormalization(const Json& json, const char* file, ImageSpec* images);

}  // namespace equipoise
