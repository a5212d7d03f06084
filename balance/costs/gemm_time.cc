#include "balance/costs/gemm_time.h"

#include <algorithm>
#include <cmath>

namespace equipoise {
namespace {

struct Tile {
  double rows, columns;
  double efficiency;  // relative to the largest
};

constexpr Tile kTiles[] = {{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.95}, {256, 64, 0.85},
                           {64, 256, 0.85}, {128, 64, 0.75}, {64, 128, 0.75},  {64, 64, 0.55}};

}  // namespace

double TileEfficiency(const GemmShape& shape, int multiprocessors) {
  if (multiprocessors <= 0) return 1;
  double best = 0;
  for (const Tile& tile : kTiles) {
    const double tiles = std::ceil(shape.m / tile.rows) * std::ceil(shape.n / tile.columns);
    const double waves = std::ceil(tiles / multiprocessors);
    const double places = waves * multiprocessors * tile.rows * tile.columns;
    best = std::max(best, tile.efficiency * shape.m * shape.n / places);
  }
  return best;
}

double GemmSeconds(const GemmShape& shape, const Cluster& cluster, int64_t element_bytes) {
  if (shape.m <= 0 || shape.n <= 0 || shape.k <= 0) return 0;
  const double flops = 2 * shape.m * shape.n * shape.k;
  const double read = shape.m * shape.k + shape.k * shape.n, written = shape.m * shape.n;
  const double peak = cluster.peak_flops * cluster.gemm_efficiency;
  const double arithmetic = flops / (peak * TileEfficiency(shape, cluster.multiprocessors));
  const double bandwidth = cluster.memory_bytes_per_s * cluster.memory_efficiency;
  const auto bytes = static_cast<double>(element_bytes);
  return std::max(arithmetic, bytes * read / bandwidth) + bytes * written / bandwidth +
         cluster.launch_s;
}

}  // namespace equipoise
