// For each power of ten from 1e-6 to 1 the middles of equal parts of [0.1, 1] times it; 0; and 1.
// Of both signs there are 1, 2, 4 .. 64 parts, else twice as many. The bounds are rounded once, as
// by torch.linspace, so that the values are those in bitsandbytes' checkpoints to the bit.

#include "parallel/kernels/dynamic_map.h"

#include <algorithm>
#include <cmath>

namespace equipoise {
namespace {

std::vector<float> MakeMap(bool is_signed) {
  std::vector<float> values = {0.0F, 1.0F};
  for (int power = 0; power < 7; ++power) {
    const int parts = (is_signed ? 1 : 2) << power;
    const auto unit = static_cast<float>(std::pow(10.0, power - 6));
    const auto bound = [parts](int i) {
      const float step = 0.9F / static_cast<float>(parts);
      return i < (parts + 1) / 2 ? std::fma(step, static_cast<float>(i), 0.1F)
                                 : std::fma(-step, static_cast<float>(parts - i), 1.0F);
    };
    for (int i = 0; i < parts; ++i) {
      const float middle = (bound(i) + bound(i + 1)) / 2 * unit;
      values.push_back(middle);
      if (is_signed) values.push_back(-middle);
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace

const std::vector<float>& DynamicMap(bool is_signed) {
  static const std::vector<float> kSigned = MakeMap(true), kUnsigned = MakeMap(false);
  return is_signed ? kSigned : kUnsigned;
}

}  // namespace equipoise
