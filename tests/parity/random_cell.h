#pragma once

#include <random>
#include <vector>

#include "tests/parity/cell.h"

namespace equipoise::testing {

class Dice {
 public:
  explicit Dice(unsigned seed) : engine_(seed) {}
  int Throw(int sides) { return static_cast<int>(engine_() % static_cast<unsigned>(sides)); }
  template <class T>
  T Pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(Throw(static_cast<int>(from.size())))];
  }

 private:
  std::mt19937 engine_;
};

// A random pattern of modalities on a random mesh of at most `most_ranks` ranks, with random
// schedule, sharding, place of the encoder, frozen modules and recomputation.
Cell RandomCell(Dice& dice, int most_ranks);

// The same model, batches and frozen modules, spread at random over another number of ranks.
Cell SpreadAnew(Cell cell, Dice& dice, int most_ranks);

// Delays the updates of one cell in three that can have them delayed, which is another way to
// train.
void ThrowDelayed(Cell& cell);

}  // namespace equipoise::testing
