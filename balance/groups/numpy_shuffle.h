#pragma once

#include <cstdint>
#include <span>

namespace equipoise {

// The order that numpy.random.RandomState(seed).shuffle() gives: Mersenne Twister, Fisher-Yates
// from the end, places drawn by masked rejection. So groups equal those of programs in Python.
void NumpyShuffle(uint32_t seed, std::span<int64_t> values);

}  // namespace equipoise
