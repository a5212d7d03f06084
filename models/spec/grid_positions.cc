#include "models/spec/grid_positions.h"

#include <algorithm>

#include "configs/base/error.h"

namespace equipoise {

std::vector<TokenGrid> TokenGrids(const std::vector<int64_t>& begins,
                                  const std::vector<PatchGrid>& grids, int64_t merge) {
  EQUIPOISE_CHECK(begins.size() == grids.size(), begins.size(), " of ", grids.size(), " pictures");
  std::vector<TokenGrid> pictures;
  for (size_t i = 0; i < begins.size(); ++i) {
    pictures.push_back({begins[i], grids[i].rows / merge, grids[i].columns / merge, grids[i].times,
                        grids[i].time_step});
  }
  return pictures;
}

int64_t WriteGridPositions(const std::vector<TokenGrid>& pictures, int64_t tokens,
                           const GridPositions& out) {
  int64_t token = 0, position = 0;
  const auto write = [&](int64_t time, int64_t row, int64_t column) {
    out.times[token] = time;
    out.rows[token] = row;
    out.columns[token++] = column;
  };
  for (const TokenGrid& picture : pictures) {
    for (; token < picture.begin; ++position) write(position, position, position);
    const int64_t square = picture.rows * picture.columns, all = picture.times * square;
    EQUIPOISE_CHECK(token == picture.begin && token + all <= tokens, "a picture at token ",
                    picture.begin, " of ", tokens);
    int64_t longest = std::max(picture.rows, picture.columns);
    for (int64_t i = 0; i < all; ++i) {
      // The product in fp32, cut to a whole number, as Transformers' is.
      const auto time = static_cast<int64_t>(static_cast<float>(i / square) * picture.time_step);
      longest = std::max(longest, time + 1);
      write(position + time, position + i % square / picture.columns,
            position + i % picture.columns);
    }
    position += longest;
  }
  for (; token < tokens; ++position) write(position, position, position);
  return position;
}

}  // namespace equipoise
