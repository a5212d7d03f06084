#pragma once

#include <cstdint>

#include "balance/costs/cluster.h"

namespace equipoise {

// C [m, n] = A [m, k] B [k, n].
struct GemmShape {
  double m = 0, n = 0, k = 0;
};

// Share of the multiprocessors' work that lands in C. The library covers C with tiles, which the
// multiprocessors take in waves: what sticks out of C, and the places that the last wave leaves
// empty, are lost. It chooses the best of several tiles; small ones are slower in themselves
// (NVIDIA, "Matrix Multiplication Background User's Guide", tile and wave quantization). 1 for a
// CPU.
double TileEfficiency(const GemmShape& shape, int multiprocessors);

// The slower of arithmetic (at the tiles' efficiency) and of reading A and B and writing C once,
// and one launch. 0 where there is nothing to do.
double GemmSeconds(const GemmShape& shape, const Cluster& cluster, int64_t element_bytes);

}  // namespace equipoise
