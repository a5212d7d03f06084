// Sequence parallelism in the parity matrix, ranks as threads: tensor ranks that share out the rows
// of the language model give the loss and the gradients of one process. Its first loss has the bits
// of tensor ranks that do not, as each row's sums are the same; schedules have the same bits; what
// all tensor ranks hold stays the same on each.

#include <ATen/Parallel.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>

#include "parallel/schedule/builders.h"
#include "tests/parity/cell.h"

namespace equipoise::testing {
namespace {

// What a cell has the bits of: as many data and tensor ranks without a pipeline; of a tied weight
// with one, as the head's share is added apart there. ZeRO 2 and 3 add micro-batches over data
// ranks first.
const CellResult& SameSums(const Cell& cell, bool sequence) {
  Cell same = WithoutPipeline(cell);
  const int stages =
      cell.pipeline * std::max(cell.chunks, FindSchedule(cell.schedule)->fewest_chunks);
  const bool tied = cell.model.starts_with("qwen2-tied") || cell.model == "qwen2_vl";
  same.pipeline = tied && stages > 1 ? 2 : 1;
  same.zero = cell.zero > 1 ? 2 : 0;
  same.sequence = sequence;
  return Known(same);
}

void Check(Cell cell) {
  at::set_num_threads(1);
  cell.sequence = true;
  INFO(ToString(cell));
  const CellResult result = RunCell(cell);
  const CellErrors errors = Compare(result, Known(InOneProcess(cell)));
  const bool same_bits = SameBits(result, SameSums(cell, true));
  std::printf("cell\t%s\n", Row(cell, errors, same_bits).c_str());
  INFO(ToString(errors));
  CHECK(errors.Within(BoundsOf(cell)));
  CHECK(result.copies_agree);
  CHECK(result.loss == SameSums(cell, false).loss);
  // Copies of an encoder add its gradients in another order; a tied weight in two stages is summed
  // over data ranks first with ZeRO 2 and 3.
  if (!FillsBubbles(cell.encoder) && cell.zero < 2) CHECK(same_bits);
}

TEST_CASE("sequence parity: tensor ranks, schedules and pipeline ranks", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "internvl-llama", "qwen2-tied");
  cell.tensor = GENERATE(2, 3);
  cell.pipeline = GENERATE(1, 2);
  cell.schedule = GENERATE("gpipe", "1f1b", "zb_h1", "interleaved", "zb_v");
  Check(cell);
}

TEST_CASE("sequence parity: four ranks, two of which have each key head", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("qwen2", "qwen2-tied", "llama");
  cell.tensor = 4;
  cell.pipeline = GENERATE(1, 2);
  cell.schedule = GENERATE("1f1b", "zb_h1");
  cell.micro_batches = GENERATE(1, 5);
  Check(cell);
}

TEST_CASE("sequence parity: modalities", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "llava-llama", "qwen2_5_vl");
  cell.modality = GENERATE("balanced", "text", "pictures", "mixed", "blank", "random 3");
  cell.tensor = GENERATE(2, 3);
  cell.pipeline = 3;
  cell.micro_batches = 7;
  Check(cell);
}

TEST_CASE("sequence parity: data ranks and ZeRO", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "qwen2-tied");
  cell.data = cell.tensor = 2;
  cell.pipeline = GENERATE(1, 2);
  cell.zero = GENERATE(0, 1, 2, 3);
  cell.schedule = GENERATE("1f1b", "zb_h1");
  cell.recompute = GENERATE("none", "random 1");
  Check(cell);
}

TEST_CASE("sequence parity: ZeRO where heads are shared out unevenly", "[parity][cpu]") {
  Cell cell;
  cell.data = 2;
  cell.tensor = 3;
  cell.zero = GENERATE(1, 2, 3);
  Check(cell);
}

TEST_CASE("sequence parity: recompute", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "internvl-llama");
  cell.tensor = GENERATE(2, 3);
  cell.pipeline = 2;
  cell.schedule = GENERATE("1f1b", "zb_v");
  cell.recompute = GENERATE("vision+llm", "attention", "mlp", "elementwise", "offload",
                            "full_offload", "random 2");
  Check(cell);
}

TEST_CASE("sequence parity: frozen modules", "[parity][cpu]") {
  Cell cell;
  cell.tensor = 2;
  cell.pipeline = GENERATE(1, 2);
  cell.schedule = GENERATE("1f1b", "zb_h1");
  cell.freeze =
      GENERATE(std::vector<std::string>{"vision"}, std::vector<std::string>{"llm"},
               std::vector<std::string>{"vision", "llm"}, std::vector<std::string>{"projector"},
               std::vector<std::string>{"vision", "projector"});
  cell.recompute = GENERATE("none", "vision+llm");
  Check(cell);
}

TEST_CASE("sequence parity: adapters", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2+lora", "qwen2-tied+lora", "internvl-qwen2+dropout",
                        "internvl-qwen2+dora", "internvl-llama+int8");
  std::tie(cell.data, cell.tensor) = GENERATE(table<int, int>({{1, 2}, {1, 3}, {2, 2}}));
  cell.zero = cell.data - 1;
  cell.pipeline = 2;
  cell.schedule = GENERATE("1f1b", "zb_h1");
  cell.recompute = GENERATE("none", "random 1");
  Check(cell);
}

TEST_CASE("sequence parity: other decoders", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen3", "internvl-internlm2");
  cell.tensor = GENERATE(2, 3);
  cell.pipeline = GENERATE(1, 2);
  cell.recompute = GENERATE("none", "attention");
  Check(cell);
}

TEST_CASE("sequence parity: an encoder apart, and in the bubbles", "[parity][cpu]") {
  Cell cell;
  cell.encoder = GENERATE(EncoderPlacement::kDisaggregated, EncoderPlacement::kThreePhase,
                          EncoderPlacement::kOptimus);
  cell.pipeline = FillsBubbles(cell.encoder) ? 2 : 3;
  cell.tensor = 2;
  cell.data = GENERATE(1, 2);
  cell.schedule = GENERATE("1f1b", "zb_v");
  Check(cell);
}

TEST_CASE("sequence parity: bf16", "[parity][cpu]") {
  Cell cell;
  cell.precision = "bf16";
  cell.model = GENERATE("internvl-qwen2", "internvl-llama", "qwen2-tied");
  cell.tensor = GENERATE(2, 3);
  cell.pipeline = GENERATE(1, 2);
  cell.schedule = GENERATE("1f1b", "zb_h1", "interleaved");
  cell.zero = GENERATE(0, 1);
  cell.data = 1 + cell.zero;
  Check(cell);
}

}  // namespace
}  // namespace equipoise::testing
