// ZeRO 2 and 3 in the parity matrix, ranks as threads: gradients that exist whole only until they
// are summed, and weights that exist whole only while a layer runs, give the loss and gradients of
// one process; with one micro-batch a data rank, the bits of ZeRO 0. Hierarchical ZeRO, of which
// several groups of ranks hold a copy each, gives them too.

#include <ATen/Parallel.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include "tests/parity/cell.h"
#include "tests/trainer/scratch_folder.h"

namespace equipoise::testing {
namespace {

const CellResult& OneProcess(const Cell& cell) { return Known(InOneProcess(cell)); }

void Check(const Cell& cell, bool same_as_whole_state) {
  at::set_num_threads(1);
  INFO(ToString(cell));
  const CellResult result = RunCell(cell);
  const CellErrors errors = Compare(result, OneProcess(cell));
  bool same_bits = false;
  if (same_as_whole_state) {
    Cell whole = cell;
    whole.zero = 0;
    same_bits = SameBits(result, Known(whole));
    CHECK(same_bits);
  }
  std::printf("cell\t%s\n", Row(cell, errors, same_bits).c_str());
  INFO(ToString(errors));
  CHECK(errors.Within(BoundsOf(cell)));
  CHECK(result.copies_agree);
}

// Weights that were saved there are those that a cell begins with.
void CheckRead(const CellResult& saved, Cell next, const std::string& folder) {
  next.steps = 0;
  INFO("read by " << ToString(next));
  const CellResult read = RunCell(next, {}, {.load = folder, .save = ""});
  for (const auto& [name, weight] : saved.weights) {
    INFO(name);
    CHECK(weight.equal(read.weights.at(name)));
  }
}

TEST_CASE("sharded parity: one micro-batch a data rank has the bits of whole state",
          "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "internvl-llama", "qwen2-tied");
  cell.zero = GENERATE(2, 3);
  cell.data = GENERATE(2, 3);
  cell.micro_batches = cell.data;
  cell.precision = GENERATE("fp32", "bf16", "fp16");
  cell.recompute = GENERATE("none", "random 1");
  Check(cell, true);
}

TEST_CASE("sharded parity: several micro-batches, and fewer for some ranks", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "qwen2-tied");
  cell.modality = GENERATE("mixed", "text", "pictures", "blank");
  cell.zero = GENERATE(2, 3);
  cell.data = 3;
  cell.micro_batches = GENERATE(2, 4, 6);
  Check(cell, false);
}

TEST_CASE("sharded parity: schedules and pipeline ranks", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "qwen2-tied");
  cell.schedule = GENERATE("naive", "gpipe", "1f1b", "zb_h1", "interleaved", "zb_v");
  cell.zero = GENERATE(2, 3);
  cell.data = cell.pipeline = 2;
  cell.micro_batches = GENERATE(2, 6);
  // A tied weight in two stages is summed over data ranks before it is over the two.
  Check(cell, cell.micro_batches == 2 && cell.model != "qwen2-tied");
}

TEST_CASE("sharded parity: ZeRO 3 has the bits of ZeRO 2", "[parity][cpu]") {
  at::set_num_threads(1);
  Cell cell;
  cell.schedule = GENERATE("gpipe", "1f1b", "zb_h1", "interleaved", "zb_v");
  cell.data = cell.pipeline = 2;
  cell.micro_batches = 6;
  cell.precision = GENERATE("fp32", "bf16", "fp16");
  cell.recompute = "random 2";
  Cell gradients = cell;
  cell.zero = 3;
  gradients.zero = 2;
  INFO(ToString(cell));
  CHECK(SameBits(RunCell(cell), RunCell(gradients)));
}

TEST_CASE("sharded parity: tensor ranks", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-llama", "qwen2-tied");
  cell.zero = GENERATE(2, 3);
  cell.data = cell.tensor = 2;
  cell.pipeline = GENERATE(1, 2);
  cell.schedule = GENERATE("1f1b", "zb_v");
  cell.precision = GENERATE("fp32", "bf16", "fp16");
  Check(cell, false);
}

TEST_CASE("sharded parity: frozen modules and recompute", "[parity][cpu]") {
  Cell cell;
  cell.zero = GENERATE(2, 3);
  cell.data = 2;
  cell.pipeline = GENERATE(1, 2);
  cell.schedule = GENERATE("1f1b", "zb_h1");
  cell.freeze =
      GENERATE(std::vector<std::string>{"vision"}, std::vector<std::string>{"llm"},
               std::vector<std::string>{"vision", "llm"}, std::vector<std::string>{"projector"});
  cell.recompute = GENERATE("none", "vision+llm");
  cell.micro_batches = 2;
  Check(cell, true);
}

TEST_CASE("sharded parity: an encoder on ranks of its own", "[parity][cpu]") {
  Cell cell;
  cell.encoder = EncoderPlacement::kDisaggregated;
  cell.schedule = GENERATE("gpipe", "1f1b", "zb_h1", "interleaved", "zb_v");
  cell.modality = GENERATE("mixed", "text");
  cell.zero = GENERATE(2, 3);
  cell.data = 2;
  cell.pipeline = 3;
  cell.micro_batches = GENERATE(2, 6);
  Check(cell, cell.micro_batches == 2);
}

TEST_CASE("sharded parity: a checkpoint of any stage of ZeRO is read by any other",
          "[parity][cpu]") {
  at::set_num_threads(1);
  const ScratchFolder folder;
  Cell cell;
  cell.data = 2;
  cell.micro_batches = 2;
  cell.zero = GENERATE(0, 1, 2, 3);
  cell.precision = GENERATE("fp32", "bf16", "fp16");
  std::tie(cell.freeze, cell.unfreeze) =
      GENERATE(table<std::vector<std::string>, std::vector<std::string>>(
          {{{"projector"}, {}}, {{"vision"}, {"vision_tower.*mlp"}}}));
  const CellResult saved = RunCell(cell, {}, {.load = "", .save = folder.path()});
  Cell next = cell;
  for (const int zero : {0, 1, 2, 3}) {
    for (const int data : {1, 2}) {
      next.zero = zero;
      next.data = data;
      CheckRead(saved, next, folder.path());
    }
  }
}

TEST_CASE("sharded parity: copies of what pairs of ranks share out", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "qwen2-tied");
  cell.zero = GENERATE(1, 2, 3);
  cell.data = 4;
  cell.zero_ranks = 2;
  // ZeRO 2 and 3 make passes for ranks that have no micro-batch.
  cell.micro_batches = GENERATE(3, 4, 8);
  cell.precision = GENERATE("fp32", "bf16", "fp16");
  if (cell.zero > 1 || cell.micro_batches >= cell.data) Check(cell, false);
}

TEST_CASE("sharded parity: copies have the same bits with any stage of ZeRO", "[parity][cpu]") {
  at::set_num_threads(1);
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "qwen2-tied");
  cell.data = cell.micro_batches = GENERATE(4, 6);
  cell.zero_ranks = cell.data / 2;
  cell.zero = 1;
  const CellResult first = RunCell(cell);
  for (const int zero : {2, 3}) {
    cell.zero = zero;
    INFO(ToString(cell));
    CHECK(SameBits(RunCell(cell), first));
  }
}

TEST_CASE("sharded parity: copies over pipeline, tensor and context ranks", "[parity][cpu]") {
  Cell cell;
  cell.zero = GENERATE(1, 2, 3);
  cell.zero_ranks = 2;
  cell.data = 4;
  SECTION("pipeline ranks, a tied weight in two stages") {
    cell.model = GENERATE("internvl-qwen2", "qwen2-tied");
    cell.pipeline = 2;
    cell.schedule = GENERATE("1f1b", "zb_v");
    cell.recompute = "random 3";
  }
  SECTION("tensor ranks") {
    cell.tensor = 2;
    cell.sequence = GENERATE(false, true);
  }
  SECTION("context ranks") {
    cell.data = 2;
    cell.context = 2;
  }
  SECTION("frozen modules") { cell.freeze = {"vision", "llm"}; }
  SECTION("adapters") { cell.model = "internvl-qwen2+lora"; }
  Check(cell, false);
}

TEST_CASE("sharded parity: copies beside those of an encoder in the bubbles", "[parity][cpu]") {
  Cell cell;
  cell.encoder = GENERATE(EncoderPlacement::kThreePhase, EncoderPlacement::kOptimus);
  cell.zero = 1;
  cell.zero_ranks = 2;
  cell.data = 4;
  cell.pipeline = 2;
  cell.micro_batches = 8;
  Check(cell, false);
}

TEST_CASE("sharded parity: a checkpoint of copies is read by any mesh, and the other way",
          "[parity][cpu]") {
  at::set_num_threads(1);
  const ScratchFolder folder;
  Cell cell;
  cell.data = cell.micro_batches = 4;
  cell.zero = GENERATE(1, 2, 3);
  cell.zero_ranks = GENERATE(0, 2);
  cell.precision = GENERATE("fp32", "bf16");
  const CellResult saved = RunCell(cell, {}, {.load = "", .save = folder.path()});
  Cell next = cell;
  next.zero_ranks = cell.zero_ranks == 0 ? 2 : 0;
  for (const int zero : {1, 2, 3}) {
    next.zero = zero;
    CheckRead(saved, next, folder.path());
  }
}

}  // namespace
}  // namespace equipoise::testing
