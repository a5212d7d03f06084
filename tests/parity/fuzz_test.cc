// Random modality patterns on random meshes: no step hangs, and every one gives the loss and the
// gradients of one process.

#include <ATen/Parallel.h>

#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/parity/cell.h"

namespace equipoise::testing {
namespace {

constexpr int kCells = 120;

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

Cell RandomCell(Dice& dice) {
  Cell cell;
  cell.model = dice.Pick<std::string>({"internvl-qwen2", "internvl-llama", "qwen2-tied"});
  cell.modality = "random " + std::to_string(dice.Throw(1000));
  do {
    cell.data = 1 + dice.Throw(3);
    cell.pipeline = 1 + dice.Throw(4);
    cell.tensor = 1 + dice.Throw(3);
  } while (cell.ranks() > 8);
  cell.schedule = dice.Pick<std::string>({"naive", "gpipe", "1f1b", "interleaved"});
  if (cell.pipeline > 2 && cell.schedule == "interleaved") cell.schedule = "1f1b";
  if (cell.model == "qwen2-tied") cell.pipeline = std::min(cell.pipeline, 2);
  if (cell.schedule == "interleaved") cell.chunks = 2;
  cell.zero = dice.Throw(2);
  cell.micro_batches = cell.data * (1 + dice.Throw(6));
  if (cell.model != "qwen2-tied") {
    cell.freeze = dice.Pick<std::vector<std::string>>(
        {{}, {}, {"vision"}, {"vision", "llm"}, {"llm"}, {"projector"}});
  }
  if (cell.model != "qwen2-tied" && cell.pipeline > 1 && dice.Throw(3) == 0) {
    cell.encoder_ranks = 1 + dice.Throw(cell.pipeline - 1);
  }
  if (dice.Throw(2) == 1) cell.recompute = "random " + std::to_string(dice.Throw(1000));
  return cell;
}

TEST_CASE("random modalities on random meshes", "[parity][fuzz][cpu]") {
  at::set_num_threads(1);
  Dice dice(20260811);
  for (int i = 0; i < kCells; ++i) {
    const Cell cell = RandomCell(dice);
    Cell one = cell;
    one.data = one.pipeline = one.tensor = one.chunks = 1;
    one.encoder_ranks = 0;
    one.schedule = "gpipe";
    one.zero = 0;
    one.recompute = "none";
    INFO(ToString(cell));
    const CellResult result = RunCell(cell), expected = RunCell(one);
    CHECK(result.loss == Approx(expected.loss).epsilon(1e-6).margin(1e-12));
    CHECK(WorstError(result.gradients, expected.gradients) <= 2e-5);
  }
}

}  // namespace
}  // namespace equipoise::testing
