#pragma once

#include <cstdint>

#include "parallel/kernels/bf16.h"

namespace equipoise::kernels {

// Row functions are the program's CUDA kernels: a row is computed by a team, which is the threads
// of a block on a GPU (kernel_entry.cuh), and one thread on the CPU. A plain compiler compiles them
// too, so tests hold them beside LibTorch on machines without a GPU. Device code: no exceptions, no
// allocation. A row function F has
//
//   F::kPack           elements that it moves at once, where its member `packed` says that
//                      addresses and sizes are multiples of as many (1: always one by one)
//   F::Shared          memory that the threads of a team share, uninitialised; Nothing
//   Run<n>(row, team)  const: computes a row, n elements at a time
struct Nothing {};

template <class Function, class Team>
EQUIPOISE_DEVICE void RunRow(const Function& function, int64_t row, const Team& team) {
  if constexpr (Function::kPack == 1) {
    function.template Run<1>(row, team);
  } else if (function.packed) {
    function.template Run<Function::kPack>(row, team);
  } else {
    function.template Run<1>(row, team);
  }
}

constexpr int64_t kMostThreads = 256;  // of a team

// Before a loop of device code: how many of its turns are in flight. Left to itself, nvcc takes
// more registers than let four blocks share a multiprocessor.
#ifdef __CUDA_ARCH__
#define EQUIPOISE_PRAGMA(text) _Pragma(#text)
#define EQUIPOISE_UNROLL(turns) EQUIPOISE_PRAGMA(unroll turns)
#else
#define EQUIPOISE_UNROLL(turns)
#endif

// One thread that does all of a row.
template <class Shared>
struct LoneThread {
  Shared& shared;
  static constexpr int64_t thread = 0, threads = 1;
  void Wait() const {}  // for all threads of the team
};

// combine() of every thread's number, for all of them, in an order that their count fixes.
// `scratch`: shared memory for as many numbers as there are threads, a power of two.
template <class Team, class Combine>
EQUIPOISE_DEVICE float OverTeam(const Team& team, float number, float* scratch,
                                const Combine& combine) {
  scratch[team.thread] = number;
  team.Wait();
  for (int64_t half = team.threads / 2; half > 0; half /= 2) {
    if (team.thread < half)
      scratch[team.thread] = combine(scratch[team.thread], scratch[team.thread + half]);
    team.Wait();
  }
  const float result = scratch[0];
  team.Wait();
  return result;
}

// Elements that lie behind each other, read or written at once. REQUIRES: aligned to their size,
// which is at most 16 bytes.
template <class T, int kSize>
struct alignas(kSize * sizeof(T)) Pack {
  static_assert(kSize * sizeof(T) <= 16);
  T at[kSize];

  EQUIPOISE_DEVICE static Pack From(const T* memory) {
    return *reinterpret_cast<const Pack*>(memory);
  }
  EQUIPOISE_DEVICE void To(T* memory) const { *reinterpret_cast<Pack*>(memory) = *this; }
};

// Elements of T in 16 bytes.
template <class T>
constexpr int kWidest = static_cast<int>(16 / sizeof(T));

// `kSize` elements that lie behind each other, as fp32. REQUIRES: aligned to their size, or to 16
// bytes where they are larger.
template <int kSize>
struct Lanes {
  float at[kSize];

  template <class T>
  EQUIPOISE_DEVICE static Lanes From(const T* memory) {
    constexpr int kStep = kSize < kWidest<T> ? kSize : kWidest<T>;
    Lanes lanes;
    for (int i = 0; i < kSize; i += kStep) {
      const auto pack = Pack<T, kStep>::From(memory + i);
      for (int j = 0; j < kStep; ++j) lanes.at[i + j] = Load(pack.at[j]);
    }
    return lanes;
  }

  template <class T>
  EQUIPOISE_DEVICE void To(T* memory) const {
    constexpr int kStep = kSize < kWidest<T> ? kSize : kWidest<T>;
    for (int i = 0; i < kSize; i += kStep) {
      Pack<T, kStep> pack;
      for (int j = 0; j < kStep; ++j) Store(at[i + j], pack.at[j]);
      pack.To(memory + i);
    }
  }
};

}  // namespace equipoise::kernels
