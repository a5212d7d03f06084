#pragma once

#include "configs/base/json.h"

namespace equipoise {

// Requires the settings of an image or video processor to have the steps that pictures and frames
// go through here: a bicubic resize, numbers between 0 and 1, normalization. Absent keys do. Where
// `bilinear` is given, that resize is allowed too, and told. `file` names the processor. Throws
// DataError (`FILE: key: what; what to do`).
void RequireKnownSteps(const Json& json, const char* file, bool* bilinear = nullptr);

}  // namespace equipoise
