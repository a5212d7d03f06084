#pragma once

#include <cstdint>

#include "balance/costs/cluster.h"

namespace equipoise {

// A matrix product C [m, n] = A [m, k] B [k, n].
struct GemmShape {
  double m = 0, n = 0, k = 0;
};

// Share of the multiprocessors' work that is useful. The library covers C with tiles, which the
// multiprocessors compute in waves; parts of tiles outside C, and idle multiprocessors in the last
// wave, are lost. The best of several tile sizes is used; small tiles are less efficient by
// themselves (NVIDIA, "Matrix Multiplication Background User's Guide", tile and wave quantization).
// 1 for a CPU.
double TileEfficiency(const GemmShape& shape, int multiprocessors);

// Seconds of a product: the larger of arithmetic (at the tiles' efficiency) and memory traffic (A
// and B read, C written once), plus one launch. 0 for an empty product.
double GemmSeconds(const GemmShape& shape, const Cluster& cluster, int64_t element_bytes);

}  // namespace equipoise
