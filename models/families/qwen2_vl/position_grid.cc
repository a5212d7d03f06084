#include "models/families/qwen2_vl/position_grid.h"

#include <algorithm>
#include <cmath>

namespace equipoise {
namespace {

// Neighbours on one axis, and their weights.
struct Neighbours {
  std::array<int64_t, 2> places;
  std::array<float, 2> weights;
};

// Of place `index` of `size`. In fp32, as Transformers computes them.
Neighbours NeighboursOf(int64_t index, int64_t size, int64_t side) {
  const auto last = static_cast<float>(std::max<int64_t>(1, size - 1));
  const float place = static_cast<float>(index) * static_cast<float>(side - 1) / last;
  const float floor = std::floor(place);
  const auto first = static_cast<int64_t>(floor);
  return {{first, std::min(first + 1, side - 1)},
          {1 - (place - floor), 1 - std::abs(place - floor - 1)}};
}

}  // namespace

PositionGrid PositionGridOf(const PatchLayout& layout, const std::vector<PatchGrid>& pictures,
                            int64_t side) {
  PositionGrid grid;
  for (size_t picture = 0; picture < pictures.size(); ++picture) {
    for (auto i = static_cast<size_t>(layout.pictures[picture]);
         i < static_cast<size_t>(layout.pictures[picture + 1]); ++i) {
      const Neighbours row = NeighboursOf(layout.rows[i], pictures[picture].rows, side);
      const Neighbours column = NeighboursOf(layout.columns[i], pictures[picture].columns, side);
      for (size_t corner = 0; corner < 4; ++corner) {
        const size_t down = corner / 2, across = corner % 2;
        grid.corners[corner].push_back(row.places[down] * side + column.places[across]);
        grid.weights[corner].push_back(row.weights[down] * column.weights[across]);
      }
    }
  }
  return grid;
}

}  // namespace equipoise
