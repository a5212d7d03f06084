// Random modality patterns on random meshes: no step hangs, and every one gives the loss and the
// gradients of one process, from the first weights and from the checkpoint of another mesh.

#include <ATen/Parallel.h>

#include <catch2/catch.hpp>

#include "tests/parity/cell.h"
#include "tests/parity/random_cell.h"
#include "tests/trainer/scratch_folder.h"

namespace equipoise::testing {
namespace {

constexpr int kCells = 120, kPairs = 60, kMostRanks = 8;

TEST_CASE("random modalities on random meshes", "[parity][fuzz][cpu]") {
  at::set_num_threads(1);
  Dice dice(20260811);
  for (int i = 0; i < kCells; ++i) {
    const Cell cell = RandomCell(dice, kMostRanks);
    INFO(ToString(cell));
    const CellResult result = RunCell(cell), expected = RunCell(InOneProcess(cell));
    CHECK(result.loss == Approx(expected.loss).epsilon(1e-6).margin(1e-12));
    CHECK(WorstError(result.gradients, expected.gradients) <= 2e-5);
  }
}

// The losses of further steps: the second and later rest on AdamW's moments too.
TEST_CASE("a checkpoint of a random mesh goes on under another", "[parity][fuzz][cpu]") {
  at::set_num_threads(1);
  Dice dice(20260812);
  for (int i = 0; i < kPairs; ++i) {
    const Cell before = RandomCell(dice, kMostRanks), after = SpreadAnew(before, dice, kMostRanks);
    INFO(ToString(before) << ", then " << ToString(after));
    const ScratchFolder folder;
    RunCell(before, {}, {"", folder.path()});
    const CellResult result = RunCell(after, {}, {folder.path(), ""});
    Cell one = InOneProcess(before);
    one.steps = before.steps + after.steps;
    const CellResult expected = RunCell(one);
    const auto done = static_cast<size_t>(before.steps);
    REQUIRE(result.losses.size() + done == expected.losses.size());
    CHECK(result.loss == result.losses[0]);
    for (size_t step = 0; step < result.losses.size(); ++step) {
      INFO("step " << done + step);
      CHECK(result.losses[step] == Approx(expected.losses[done + step]).epsilon(1e-5));
      CHECK(result.norms[step] == Approx(expected.norms[done + step]).epsilon(1e-3));
    }
  }
}

}  // namespace
}  // namespace equipoise::testing
