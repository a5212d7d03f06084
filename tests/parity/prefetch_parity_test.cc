// A frozen encoder that runs a step ahead in the bubbles: losses, norms, gradients and weights of
// several steps on changing micro-batches have the bits of the same steps without it.

#include <ATen/Parallel.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/parity/cell.h"

namespace equipoise::testing {
namespace {

using Frozen = std::vector<std::string>;

Cell Ahead() {
  Cell cell;
  cell.encoder = EncoderPlacement::kOptimus;
  cell.pipeline = 2;
  cell.freeze = Frozen{"vision", "projector"};
  cell.turning = cell.prefetch = true;
  return cell;
}

CellResult OneProcess(Cell cell) {
  cell.data = cell.pipeline = cell.tensor = 1;
  cell.zero = 0;
  cell.encoder = EncoderPlacement::kInline;
  cell.prefetch = false;
  cell.schedule = "gpipe";
  cell.chunks = 0;
  cell.stage_begins.clear();
  cell.recompute = "none";
  return RunCell(cell);
}

// The bits of a run without; and in all steps but the first features come from the step before.
void CheckBits(const Cell& cell) {
  at::set_num_threads(1);
  INFO(ToString(cell));
  const CellResult ahead = RunCell(cell);
  Cell without = cell;
  without.prefetch = false;
  const CellResult same = RunCell(without);
  CHECK(ahead.losses == same.losses);
  CHECK(SameBits(ahead, same));
  CHECK(ahead.taken == cell.steps * cell.micro_batches / cell.data);
  CHECK(same.taken == 0);
  CHECK(Compare(ahead, OneProcess(cell)).Within(BoundsOf(cell)));
}

TEST_CASE("prefetch parity: placements, schedules and copies", "[parity][cpu]") {
  Cell cell = Ahead();
  cell.encoder = GENERATE(EncoderPlacement::kThreePhase, EncoderPlacement::kDep,
                          EncoderPlacement::kOptimusCoarse, EncoderPlacement::kOptimus);
  cell.schedule = GENERATE("naive", "gpipe", "1f1b", "zb_h1", "interleaved", "zb_v");
  std::tie(cell.modality, cell.encoder_ranks, cell.encoder_chunks) = GENERATE(
      table<std::string, int, int>({{"mixed", 1, 1}, {"pictures", 1, 3}, {"mixed", 2, 2}}));
  cell.micro_batches = 5;
  CheckBits(cell);
}

TEST_CASE("prefetch parity: four pipeline ranks", "[parity][cpu]") {
  Cell cell = Ahead();
  cell.model = GENERATE("internvl-qwen2", "internvl-llama");
  cell.modality = "pictures";
  cell.schedule = GENERATE("1f1b", "zb_h1");
  cell.pipeline = 4;
  cell.encoder_ranks = GENERATE(1, 2, 4);
  cell.micro_batches = GENERATE(1, 7);
  CheckBits(cell);
}

TEST_CASE("prefetch parity: data and tensor ranks", "[parity][cpu]") {
  Cell cell = Ahead();
  cell.schedule = GENERATE("1f1b", "zb_v");
  std::tie(cell.data, cell.tensor) = GENERATE(table<int, int>({{2, 1}, {1, 2}, {2, 2}}));
  cell.zero = cell.data - 1;
  cell.sequence = cell.tensor == 2;
  cell.precision = GENERATE("fp32", "bf16");
  CheckBits(cell);
}

TEST_CASE("prefetch parity: text alone, pictures now and then, nothing trained but a part",
          "[parity][cpu]") {
  Cell cell = Ahead();
  cell.schedule = GENERATE("1f1b", "interleaved");
  cell.modality =
      GENERATE("text", "random 3", "random 4", "random 5", "random 6", "random 7", "random 8");
  cell.recompute = GENERATE("none", "random 1");
  cell.steps = 5;
  CheckBits(cell);
}

TEST_CASE("prefetch parity: other encoders, and adapters of the language model", "[parity][cpu]") {
  Cell cell = Ahead();
  cell.model = GENERATE("llava-llama", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl-qwen2+lora",
                        "internvl-qwen2+dropout", "internvl-qwen2+int8");
  cell.modality = "pictures";
  cell.schedule = GENERATE("1f1b", "zb_v");
  cell.encoder_ranks = GENERATE(1, 2);
  CheckBits(cell);
}

// A projector that is trained is the first layer of the language model's first stage then: its
// gradients add up as in one process, where those of copies do not.
TEST_CASE("prefetch parity: a projector that is trained", "[parity][cpu]") {
  Cell cell = Ahead();
  cell.freeze = Frozen{"vision"};
  cell.model = GENERATE("internvl-qwen2", "internvl-llama", "llava-llama");
  cell.modality = GENERATE("mixed", "pictures");
  cell.schedule = GENERATE("gpipe", "1f1b", "zb_h1", "interleaved", "zb_v");
  cell.encoder_ranks = GENERATE(1, 2);
  at::set_num_threads(1);
  INFO(ToString(cell));
  const CellResult ahead = RunCell(cell);
  CHECK(SameBits(ahead, OneProcess(cell)));
  CHECK(ahead.taken == cell.steps * cell.micro_batches);
}

TEST_CASE("prefetch parity: other micro-batches in each step give other losses", "[parity][cpu]") {
  at::set_num_threads(1);
  Cell cell = Ahead();
  cell.modality = "pictures";
  const CellResult turning = RunCell(cell);
  cell.turning = false;
  const CellResult same = RunCell(cell);
  CHECK(same.loss == turning.loss);
  CHECK_FALSE(same.losses == turning.losses);
}

}  // namespace
}  // namespace equipoise::testing
