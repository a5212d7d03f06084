// Qwen3-VL on meshes: features that travel from the encoder to the language model's first layers,
// over every cut between them, give the loss and the gradients of one process, and the bits of a
// mesh that differs in the pipeline alone.

#include <ATen/Parallel.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include "tests/parity/cell.h"

namespace equipoise::testing {
namespace {

Cell Base() {
  Cell cell;
  cell.model = "qwen3_vl";
  cell.modality = "pictures";
  cell.pipeline = 2;
  return cell;
}

// `same_bits`: of the mesh without a pipeline.
void Check(const Cell& cell, bool same_bits = true) {
  at::set_num_threads(1);
  INFO(ToString(cell));
  const CellResult result = RunCell(cell), &one = Known(InOneProcess(cell));
  const CellErrors errors = Compare(result, one);
  const bool same = SameBits(result, Known(WithoutPipeline(cell)));
  std::printf("cell\t%s\n", Row(cell, errors, same).c_str());
  INFO(ToString(errors));
  CHECK(WithinRounding(cell, errors, one));
  CHECK(result.copies_agree);
  if (same_bits) CHECK(same);
}

TEST_CASE("parity: features over schedules and meshes", "[parity][cpu]") {
  Cell cell = Base();
  cell.modality = GENERATE("mixed", "pictures", "text");
  cell.schedule = GENERATE("1f1b", "zb_h1", "interleaved", "zb_v");
  std::tie(cell.data, cell.tensor) = GENERATE(table<int, int>({{1, 1}, {2, 1}, {1, 2}, {1, 3}}));
  cell.zero = cell.data - 1;
  cell.precision = GENERATE("fp32", "bf16");
  cell.recompute = GENERATE("none", "random 1");
  Check(cell);
}

// Behind each layer between the block of the first feature and the last layer that adds one.
TEST_CASE("parity: features over every cut, and frozen parts", "[parity][cpu]") {
  Cell cell = Base();
  cell.pipeline = 4;
  cell.schedule = GENERATE("gpipe", "1f1b", "zb_h1");
  cell.stage_begins = GENERATE(std::vector<int>{0, 2, 3, 4, 8}, std::vector<int>{0, 4, 5, 6, 8},
                               std::vector<int>{0, 1, 5, 7, 8});
  cell.freeze = GENERATE(std::vector<std::string>{}, std::vector<std::string>{"vision"},
                         std::vector<std::string>{"llm"}, std::vector<std::string>{"projector"},
                         std::vector<std::string>{"vision", "projector"});
  Check(cell);
}

TEST_CASE("parity: features where each half of a block is made again", "[parity][cpu]") {
  Cell cell = Base();
  cell.stage_begins = GENERATE(std::vector<int>{0, 2, 8}, std::vector<int>{0, 6, 8});
  cell.recompute = GENERATE("vision+llm", "attention", "mlp", "elementwise", "offload",
                            "full_offload", "random 2");
  Check(cell);
}

TEST_CASE("parity: features and tensor ranks that share out rows", "[parity][cpu]") {
  Cell cell = Base();
  cell.modality = GENERATE("mixed", "pictures", "text");
  cell.sequence = true;
  cell.tensor = GENERATE(2, 3);
  cell.stage_begins =
      GENERATE(std::vector<int>{0, 3, 8}, std::vector<int>{0, 5, 8}, std::vector<int>{0, 6, 8});
  cell.schedule = GENERATE("1f1b", "zb_h1");
  cell.freeze = GENERATE(std::vector<std::string>{}, std::vector<std::string>{"vision"});
  Check(cell);
}

TEST_CASE("parity: features and shared-out gradients and values", "[parity][cpu]") {
  Cell cell = Base();
  cell.data = 2;
  cell.zero = GENERATE(1, 2, 3);
  cell.schedule = GENERATE("1f1b", "zb_h1");
  cell.recompute = GENERATE("none", "random 1");
  // ZeRO 2 and 3 add micro-batches over data ranks first.
  Check(cell, /*same_bits=*/cell.zero < 2);
}

TEST_CASE("parity: features of an encoder on ranks of its own", "[parity][cpu]") {
  Cell cell = Base();
  cell.pipeline = 3;
  cell.encoder = EncoderPlacement::kDisaggregated;
  cell.encoder_ranks = GENERATE(1, 2);
  cell.modality = GENERATE("mixed", "pictures");
  cell.schedule = GENERATE("gpipe", "1f1b", "zb_h1", "interleaved", "zb_v");
  Check(cell);
}

TEST_CASE("parity: features of an encoder in the bubbles", "[parity][cpu]") {
  Cell cell = Base();
  cell.encoder = GENERATE(EncoderPlacement::kThreePhase, EncoderPlacement::kDep,
                          EncoderPlacement::kOptimusCoarse, EncoderPlacement::kOptimus);
  cell.encoder_ranks = GENERATE(1, 2);
  cell.encoder_chunks = cell.encoder_ranks;
  cell.schedule = GENERATE("1f1b", "zb_v");
  cell.tensor = GENERATE(1, 2);
  // Copies of the encoder add the gradients of the micro-batches that each ran.
  Check(cell, /*same_bits=*/cell.encoder_ranks == 2);
}

}  // namespace
}  // namespace equipoise::testing
