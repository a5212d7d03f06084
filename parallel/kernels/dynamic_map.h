#pragma once

#include <vector>

namespace equipoise {

// The 256 values, ascending, of bitsandbytes' dynamic data type (8-bit optimizers, Dettmers et al.
// 2022, arXiv 2110.02861, section 2.2), to the bit: with a sign from -0.993 to 1, else from 0 to 1.
// LibTorch-free.
const std::vector<float>& DynamicMap(bool is_signed);

}  // namespace equipoise
