#include "models/spec/grid_positions.h"

#include <algorithm>

#include "configs/base/error.h"

namespace equipoise {

std::vector<TokenGrid> TokenGrids(const std::vector<int64_t>& begins,
                                  const std::vector<PatchGrid>& grids, int64_t merge) {
  EQUIPOISE_CHECK(begins.size() == grids.size(), begins.size(), " of ", grids.size(), " pictures");
  std::vector<TokenGrid> pictures;
  for (size_t i = 0; i < begins.size(); ++i) {
    pictures.push_back({begins[i], grids[i].rows / merge, grids[i].columns / merge});
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
    EQUIPOISE_CHECK(token == picture.begin && token + picture.rows * picture.columns <= tokens,
                    "a picture at token ", picture.begin, " of ", tokens);
    for (int64_t row = 0; row < picture.rows; ++row) {
      for (int64_t column = 0; column < picture.columns; ++column) {
        write(position, position + row, position + column);
      }
    }
    position += std::max(picture.rows, picture.columns);
  }
  for (; token < tokens; ++position) write(position, position, position);
  return position;
}

}  // namespace equipoise
