#pragma once

#include <cstdint>

namespace equipoise {

// Random numbers that depend on a key and their index alone, with the same bits on every
// instruction set. Each writes numbers [first, last) of the sequence of `key` to `out`.

// Normal numbers of mean 0, by Box and Muller: numbers 2k and 2k + 1 come from uniform numbers 2k
// and 2k + 1.
void DrawNormal(uint64_t key, double deviation, int64_t first, int64_t last, float* out);
// Uniform in (-bound, bound].
void DrawUniform(uint64_t key, double bound, int64_t first, int64_t last, float* out);

}  // namespace equipoise
