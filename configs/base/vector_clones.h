#pragma once

// EQUIPOISE_VECTOR marks a function whose results are equal on every instruction set: of integers,
// or of floating point without sums that could be reordered and without products that could be
// contracted with them. It is compiled for several sets, and the widest one is chosen when the
// program starts. Not for templates; what it calls must be inlined.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define EQUIPOISE_VECTOR \
  __attribute__((optimize("O3"), target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define EQUIPOISE_VECTOR
#endif
