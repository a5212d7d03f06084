// Random modality patterns on random meshes: no step hangs, and every one gives the losses, the
// gradients and the weights of one process, from the first weights and from the checkpoint of
// another mesh.

#include <ATen/Parallel.h>

#include <algorithm>
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
    Cell cell = RandomCell(dice, kMostRanks);
    ThrowDelayed(cell);
    const CellResult one = RunCell(InOneProcess(cell));
    const CellResult result = RunCell(cell);
    const CellErrors errors = Compare(result, one);
    INFO(ToString(cell) << ": " << ToString(errors));
    CHECK(WithinRounding(cell, errors, one));
    CHECK(result.copies_agree);
  }
}

// The losses of further steps: the second and later rest on AdamW's moments too.
TEST_CASE("a checkpoint of a random mesh goes on under another", "[parity][fuzz][cpu]") {
  at::set_num_threads(1);
  Dice dice(20260812);
  for (int i = 0; i < kPairs; ++i) {
    const Cell before = RandomCell(dice, kMostRanks), after = SpreadAnew(before, dice, kMostRanks);
    const ScratchFolder folder;
    RunCell(before, {}, {"", folder.path()});
    const CellResult result = RunCell(after, {}, {folder.path(), ""});
    Cell one = InOneProcess(before);
    one.steps = before.steps + after.steps;
    const CellResult expected = RunCell(one);
    const auto done = static_cast<size_t>(before.steps);
    REQUIRE(result.losses.size() + done == expected.losses.size());
    CHECK(result.loss == result.losses[0]);
    CellResult rest = expected;
    rest.loss = expected.losses[done];
    rest.losses.erase(rest.losses.begin(), rest.losses.begin() + before.steps);
    rest.norms.erase(rest.norms.begin(), rest.norms.begin() + before.steps);
    rest.gradients = result.gradients;  // of the first step, which the other has long taken
    const CellErrors errors = Compare(result, rest);
    CHECK(result.copies_agree);
    INFO(ToString(before) << ", then " << ToString(after) << ": " << ToString(errors));
    Cell rounded = after;  // by the ranks of either
    rounded.tensor = std::max(before.tensor, after.tensor);
    rounded.context = std::max(before.context, after.context);
    CHECK(errors.Within(BoundsOf(rounded)));
  }
}

// What the bounds of moves tell: weights that no step has moved, and those that lack a step.
TEST_CASE("parity: an optimizer that does nothing, or less, is told", "[parity][cpu]") {
  at::set_num_threads(1);
  Cell cell, still, late;
  cell.precision = still.precision = late.precision = GENERATE("fp32", "bf16", "fp16");
  still.steps = 0;
  late.steps = 1;
  const CellResult right = RunCell(cell);
  const MoveError bound = BoundsOf(cell).moves;
  const MoveError none = CompareMoves(RunCell(still).weights, right.weights);
  CHECK(none.worst == Approx(1));
  CHECK(none.whole == Approx(1));
  const MoveError less = CompareMoves(RunCell(late).weights, right.weights);
  CHECK(less.whole > bound.whole);
}

}  // namespace
}  // namespace equipoise::testing
