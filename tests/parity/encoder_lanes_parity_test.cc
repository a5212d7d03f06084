// Copies of an encoder with fewer tensor ranks than the language model: several lie side by side on
// the tensor ranks of each pipeline rank and encode other micro-batches. Loss, gradients and steps
// are those of one process; all schedules, placements and copies give one loss and the same bits of
// the language model's gradients.

#include <ATen/Parallel.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include "tests/parity/cell.h"
#include "tests/trainer/scratch_folder.h"

namespace equipoise::testing {
namespace {

using Frozen = std::vector<std::string>;

// The same tensor ranks without a pipeline, each copy of the encoder whole.
Cell CopiesAlone(Cell cell) {
  cell.pipeline = cell.encoder_ranks = cell.encoder_chunks = 1;
  cell.encoder = EncoderPlacement::kThreePhase;
  cell.zero = 0;
  cell.prefetch = false;
  cell.schedule = "gpipe";
  cell.chunks = 0;
  cell.recompute = "none";
  return cell;
}

void Check(const Cell& cell) {
  at::set_num_threads(1);
  INFO(ToString(cell));
  const CellResult result = RunCell(cell);
  const CellResult &one = Known(InOneProcess(cell)), &same = Known(CopiesAlone(cell));
  const CellErrors errors = Compare(result, one);
  std::printf("cell\t%s\n", Row(cell, errors, SameBits(result, same)).c_str());
  INFO(ToString(errors));
  CHECK(WithinRounding(cell, errors, one));
  CHECK(result.copies_agree);
  CHECK(result.loss == same.loss);
  CHECK(OtherTextBits(result, same) == "");
}

Cell Lanes(int tensor, int encoder_tensor) {
  Cell cell;
  cell.encoder =
      GENERATE(EncoderPlacement::kThreePhase, EncoderPlacement::kDep, EncoderPlacement::kOptimus);
  cell.tensor = tensor;
  cell.encoder_tensor = encoder_tensor;
  cell.pipeline = 2;
  return cell;
}

TEST_CASE("lanes parity: every schedule and placement", "[parity][cpu]") {
  Cell cell = Lanes(2, 1);
  cell.schedule = GENERATE("naive", "gpipe", "1f1b", "zb_h1", "interleaved", "zb_v");
  std::tie(cell.modality, cell.encoder_ranks, cell.encoder_chunks) =
      GENERATE(table<std::string, int, int>({{"mixed", 1, 1}, {"pictures", 2, 2}}));
  cell.micro_batches = 5;
  Check(cell);
}

TEST_CASE("lanes parity: four tensor ranks, copies on two of them or one", "[parity][cpu]") {
  Cell cell = Lanes(4, GENERATE(2, 1));
  cell.model = GENERATE("internvl-qwen2", "internvl-llama");
  cell.modality = "pictures";
  cell.schedule = GENERATE("1f1b", "zb_v");
  cell.encoder_ranks = GENERATE(1, 2);
  cell.micro_batches = 7;
  Check(cell);
}

TEST_CASE("lanes parity: one pipeline rank, and four", "[parity][cpu]") {
  Cell cell = Lanes(2, 1);
  std::tie(cell.pipeline, cell.encoder_ranks) = GENERATE(table<int, int>({{1, 1}, {4, 1}, {4, 2}}));
  cell.encoder_chunks = GENERATE(1, 2);
  cell.micro_batches = GENERATE(1, 6);
  Check(cell);
}

TEST_CASE("lanes parity: micro-batches without pictures", "[parity][cpu]") {
  Cell cell = Lanes(2, 1);
  cell.modality = GENERATE("text", "blank", "random 3", "random 4", "random 5", "random 6");
  cell.schedule = GENERATE("1f1b", "interleaved");
  Check(cell);
}

TEST_CASE("lanes parity: data ranks, ZeRO, rows shared out", "[parity][cpu]") {
  Cell cell = Lanes(2, 1);
  cell.data = 2;
  cell.zero = GENERATE(0, 1);
  cell.sequence = GENERATE(false, true);
  cell.schedule = GENERATE("1f1b", "zb_v");
  cell.precision = GENERATE("fp32", "bf16");
  Check(cell);
}

// Of several copies each has some of the optimizer's state.
TEST_CASE("lanes parity: ZeRO over copies of several tensor ranks", "[parity][cpu]") {
  Cell cell = Lanes(4, 2);
  cell.zero = 1;
  cell.sequence = GENERATE(false, true);
  cell.precision = GENERATE("fp32", "bf16");
  Check(cell);
}

TEST_CASE("lanes parity: a frozen or recomputed encoder", "[parity][cpu]") {
  Cell cell = Lanes(2, 1);
  cell.schedule = GENERATE("1f1b", "zb_h1");
  cell.freeze = GENERATE(Frozen{}, Frozen{"vision"}, Frozen{"llm"}, Frozen{"vision", "projector"});
  cell.recompute = GENERATE("none", "random 1");
  Check(cell);
}

TEST_CASE("lanes parity: other encoders, and adapters", "[parity][cpu]") {
  Cell cell;
  cell.encoder = EncoderPlacement::kOptimus;
  cell.pipeline = cell.tensor = 2;
  cell.encoder_tensor = 1;
  cell.model = GENERATE("llava-llama", "llava_onevision-qwen2", "qwen2_vl", "qwen2_5_vl",
                        "qwen3_vl", "internvl-qwen2+lora", "internvl-qwen2+dropout",
                        "internvl-qwen2+dora", "internvl-qwen2+int8");
  cell.modality = "pictures";
  cell.encoder_ranks = GENERATE(1, 2);
  cell.sequence = GENERATE(false, true);
  at::set_num_threads(1);
  INFO(ToString(cell));
  const CellResult result = RunCell(cell), &one = Known(InOneProcess(cell));
  const CellErrors errors = Compare(result, one);
  INFO(ToString(errors));
  CHECK(errors.Within(BoundsOf(cell)));
  CHECK(result.copies_agree);
}

// Features of the next step lie on the tensor ranks of the lane that made them.
TEST_CASE("lanes parity: a frozen encoder a step ahead", "[parity][cpu]") {
  Cell cell = Lanes(2, 1);
  cell.schedule = GENERATE("1f1b", "interleaved", "zb_v");
  cell.freeze = GENERATE(Frozen{"vision", "projector"}, Frozen{"vision"});
  cell.encoder_ranks = GENERATE(1, 2);
  cell.turning = cell.prefetch = true;
  at::set_num_threads(1);
  INFO(ToString(cell));
  const CellResult ahead = RunCell(cell);
  CHECK(ahead.taken == cell.steps * cell.micro_batches);
  CHECK(Compare(ahead, Known(InOneProcess(cell))).Within(BoundsOf(cell)));
  if (cell.freeze.size() < 2) return;  // a projector that is trained is in no lane then
  Cell without = cell;
  without.prefetch = false;
  const CellResult same = RunCell(without);
  CHECK(ahead.losses == same.losses);
  CHECK(SameBits(ahead, same));
}

// The steps behind a checkpoint of one mesh under another are those of a run in one piece.
void CheckResumed(const Cell& before, const Cell& after) {
  at::set_num_threads(1);
  const ScratchFolder folder;
  RunCell(before, {}, {"", folder.path()});
  const CellResult result = RunCell(after, {}, {folder.path(), ""});
  Cell one = InOneProcess(before);
  one.steps = before.steps + after.steps;
  const CellResult& expected = Known(one);
  INFO(ToString(before) << ", then " << ToString(after));
  REQUIRE(result.losses.size() + static_cast<size_t>(before.steps) == expected.losses.size());
  CellResult rest = expected;
  rest.loss = expected.losses[static_cast<size_t>(before.steps)];
  rest.losses.erase(rest.losses.begin(), rest.losses.begin() + before.steps);
  rest.norms.erase(rest.norms.begin(), rest.norms.begin() + before.steps);
  rest.gradients = result.gradients;
  const CellErrors errors = Compare(result, rest);
  INFO(ToString(errors));
  CHECK(errors.Within(BoundsOf(after)));
}

TEST_CASE("lanes parity: checkpoints of any tensor ranks", "[parity][cpu]") {
  Cell lanes;
  lanes.encoder = EncoderPlacement::kOptimus;
  lanes.tensor = 4;
  lanes.pipeline = 2;
  lanes.encoder_tensor = GENERATE(1, 2);
  lanes.zero = GENERATE(0, 1);
  Cell other;
  std::tie(other.data, other.pipeline, other.tensor) =
      GENERATE(table<int, int, int>({{1, 1, 1}, {2, 1, 3}, {1, 4, 2}}));
  if (other.pipeline == 4) {
    other.encoder = EncoderPlacement::kDep;
    other.encoder_ranks = 2;
    other.encoder_tensor = 1;
  }
  other.zero = 1;
  CheckResumed(lanes, other);
  CheckResumed(other, lanes);
}

}  // namespace
}  // namespace equipoise::testing
