#include "balance/groups/numpy_shuffle.h"

#include <bit>
#include <random>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {

void NumpyShuffle(uint32_t seed, std::span<int64_t> values) {
  EQUIPOISE_CHECK(values.size() <= (size_t{1} << 32), "numpy draws 32 bits");
  std::mt19937 generator(seed);
  for (size_t last = values.size(); last > 1; --last) {
    const auto most = static_cast<uint32_t>(last - 1);
    const uint32_t mask = std::bit_ceil(uint64_t{most} + 1) - 1;
    uint32_t drawn = 0;
    do {
      drawn = static_cast<uint32_t>(generator()) & mask;
    } while (drawn > most);
    std::swap(values[most], values[drawn]);
  }
}

}  // namespace equipoise
