// PipeDream-2BW: passes of two steps run in turn, on two versions of the weights. Losses, norms,
// gradients and weights of several steps on changing micro-batches have the bits of one process
// whose updates are delayed alike (tests/trainer/delayed_updates_test.cc shows that it is
// W(t + 1) = W(t) - step(gradients at W(t - 1))).

#include <ATen/Parallel.h>

#include <catch2/catch.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "tests/parity/cell.h"

namespace equipoise::testing {
namespace {

using Modules = std::vector<std::string>;

Cell Delayed() {
  Cell cell;
  cell.schedule = "pipedream_2bw";
  cell.pipeline = 2;
  cell.turning = true;
  cell.steps = 4;
  return cell;
}

void CheckBits(const Cell& cell) {
  at::set_num_threads(1);
  INFO(ToString(cell));
  const CellResult result = RunCell(cell);
  const CellResult& one = Known(InOneProcess(cell));
  CHECK(result.losses == one.losses);
  CHECK(SameBits(result, one));
  CHECK(result.copies_agree);
}

void CheckBounds(const Cell& cell) {
  at::set_num_threads(1);
  INFO(ToString(cell));
  const CellResult result = RunCell(cell);
  const CellResult& one = Known(InOneProcess(cell));
  CHECK(WithinRounding(cell, Compare(result, one), one));
  CHECK(result.copies_agree);
}

TEST_CASE("2bw parity: pipelines of all depths and steps of any length", "[parity][cpu]") {
  Cell cell = Delayed();
  cell.pipeline = GENERATE(2, 3, 4);
  cell.micro_batches = GENERATE(1, 2, 4, 7);
  cell.modality = GENERATE("mixed", "pictures");
  CheckBits(cell);
}

TEST_CASE("2bw parity: an encoder apart", "[parity][cpu]") {
  Cell cell = Delayed();
  cell.encoder = EncoderPlacement::kDisaggregated;
  cell.pipeline = 4;
  cell.encoder_ranks = GENERATE(1, 2);
  cell.freeze = GENERATE(Modules{}, Modules{"vision"}, Modules{"vision", "projector"});
  cell.micro_batches = 6;
  CheckBits(cell);
}

TEST_CASE("2bw parity: families and adapters", "[parity][cpu]") {
  Cell cell = Delayed();
  cell.model = GENERATE("internvl-llama", "llava-llama", "qwen3_vl", "qwen2", "internvl-qwen2+lora",
                        "internvl-qwen2+dropout", "internvl-qwen2+int8",
                        "internvl-qwen2+vocabulary", "internvl-qwen2+dora", "internvl-drop_path");
  cell.modality = "pictures";
  cell.pipeline = GENERATE(2, 3);
  CheckBits(cell);
}

// Both ends add to a tied weight's gradient: in another order than one process does.
TEST_CASE("2bw parity: tied weights", "[parity][cpu]") {
  Cell cell = Delayed();
  cell.model = GENERATE("qwen2_vl", "qwen2-tied");
  cell.pipeline = GENERATE(2, 3);
  CheckBounds(cell);
}

// Both ends on the last of two ranks, which runs forwards ahead alone.
TEST_CASE("2bw parity: tied weights in one stage", "[parity][cpu]") {
  Cell cell = Delayed();
  cell.model = "qwen2_vl";
  cell.modality = "pictures";
  cell.encoder = EncoderPlacement::kDisaggregated;
  cell.pipeline = GENERATE(2, 3);
  cell.encoder_ranks = cell.pipeline - 1;
  CheckBits(cell);
}

TEST_CASE("2bw parity: frozen modules", "[parity][cpu]") {
  Cell cell = Delayed();
  cell.freeze = GENERATE(Modules{"vision"}, Modules{"llm"}, Modules{"vision", "llm"});
  cell.pipeline = GENERATE(2, 4);
  CheckBits(cell);
}

TEST_CASE("2bw parity: recomputed passes use the weights of their step", "[parity][cpu]") {
  Cell cell = Delayed();
  cell.recompute = GENERATE("vision+llm", "attention", "mlp", "elementwise", "offload",
                            "full_offload", "random 1", "random 2");
  cell.pipeline = 3;
  cell.modality = GENERATE("mixed", "pictures");
  CheckBits(cell);
}

TEST_CASE("2bw parity: micro-batches of all kinds", "[parity][cpu]") {
  Cell cell = Delayed();
  cell.modality = GENERATE("text", "blank", "random 3", "random 4", "random 5", "random 6");
  cell.pipeline = GENERATE(2, 4);
  cell.micro_batches = 5;
  CheckBits(cell);
}

TEST_CASE("2bw parity: data, tensor and context ranks", "[parity][cpu]") {
  Cell cell = Delayed();
  std::tie(cell.data, cell.tensor, cell.context) =
      GENERATE(table<int, int, int>({{2, 1, 1}, {1, 2, 1}, {2, 2, 1}, {1, 1, 2}, {2, 1, 2}}));
  // Pictures are shared out in the stage that has the token embedding.
  if (cell.context > 1) cell.stage_begins = StagesWithPicturesFirst(cell.model, cell.pipeline);
  cell.zero = GENERATE(0, 1);
  cell.sequence = cell.tensor == 2;
  cell.precision = GENERATE("fp32", "bf16");
  cell.micro_batches = 8;
  CheckBounds(cell);
}

TEST_CASE("2bw parity: in bf16 a pipeline has the bits of one process", "[parity][cpu]") {
  Cell cell = Delayed();
  cell.precision = "bf16";
  cell.pipeline = GENERATE(2, 3);
  CheckBits(cell);
}

// The first step is of the first weights in either; the second too, where updates are delayed.
TEST_CASE("2bw parity: it is another way to train", "[parity][cpu]") {
  at::set_num_threads(1);
  Cell cell = Delayed();
  cell.turning = false;
  const CellResult delayed = RunCell(cell);
  CHECK(delayed.losses[0] == delayed.losses[1]);
  CHECK(delayed.losses[1] != delayed.losses[2]);
  cell.schedule = "1f1b";
  const CellResult flushed = RunCell(cell);
  CHECK(flushed.loss == delayed.loss);
  CHECK(flushed.losses[0] != flushed.losses[1]);
}

}  // namespace
}  // namespace equipoise::testing
