#pragma once

// Marks a function of integer arithmetic, equal on every instruction set: it is compiled for
// several of them, and the widest one is chosen when the program starts. Not for templates; what it
// calls must be inlined.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define EQUIPOISE_VECTOR \
  __attribute__((optimize("O3"), target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define EQUIPOISE_VECTOR
#endif
