#pragma once

#include <cstdint>
#include <span>

namespace equipoise {

// Shuffles as numpy.random.RandomState(seed).shuffle(): Mersenne Twister, Fisher-Yates from the
// end, indices by masked rejection. Groups then equal those of the published Python code.
void NumpyShuffle(uint32_t seed, std::span<int64_t> values);

}  // namespace equipoise
