// The parity matrix, ranks as threads: every way to spread a step over ranks gives the loss and the
// gradients of one process; ways that differ in the pipeline alone give its bits.

#include <ATen/Parallel.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <map>

#include "tests/parity/cell.h"

namespace equipoise::testing {
namespace {

// Without a pipeline, computed once for all cells that compare with it.
const CellResult& Reference(Cell cell, int data) {
  static std::map<std::string, CellResult> known;
  cell.data = data;
  cell.zero = 0;
  cell.pipeline = cell.tensor = 1;
  cell.encoder_ranks = 0;
  cell.schedule = "gpipe";
  cell.stage_begins.clear();
  cell.recompute = "none";
  const std::string name = ToString(cell);
  if (known.count(name) == 0) known[name] = RunCell(cell);
  return known[name];
}

// Of the weights after AdamW's steps.
double WeightError(CellResult a, CellResult b) {
  for (const auto& [name, weight] : CellResult(b).weights) {
    if (IsZeroInExactArithmetic(name)) {
      a.weights.erase(name);
      b.weights.erase(name);
    }
  }
  return WorstError(a.weights, b.weights);
}

void Check(const Cell& cell) {
  at::set_num_threads(1);
  INFO(ToString(cell));
  const CellResult result = RunCell(cell), &one = Reference(cell, 1);
  const bool fp32 = cell.precision == "fp32";
  const double gradient_error = WorstError(result.gradients, one.gradients);
  const double weight_error = WeightError(result, one);
  const bool same_bits = SameBits(result, Reference(cell, cell.data));
  // A row of the table that scripts/parity makes.
  std::printf("cell\t%s\t%.1e\t%.1e\t%.1e\t%s\n", ToString(cell).c_str(),
              std::abs(result.loss - one.loss) / std::abs(one.loss), gradient_error, weight_error,
              same_bits ? "yes" : "no");
  CHECK(result.loss == Approx(one.loss).epsilon(fp32 ? 1e-6 : 5e-3));
  // In bf16 each rank rounds its partial sums.
  const double bf16_bound = cell.tensor > 1 ? 1e-1 : 5e-2;
  CHECK(gradient_error <= (fp32 ? 2e-5 : bf16_bound));
  CHECK(weight_error <= (fp32 ? 1e-4 : 1e-2));
  // The head's share of a tied weight is added apart where it lies on another stage.
  if (cell.tensor == 1 && cell.model != "qwen2-tied") CHECK(same_bits);
}

Cell Base() {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "internvl-llama", "qwen2-tied");
  return cell;
}

TEST_CASE("parity: schedules and pipeline ranks", "[parity][cpu]") {
  Cell cell = Base();
  cell.schedule = GENERATE("naive", "gpipe", "1f1b", "zb_h1");
  cell.pipeline = GENERATE(1, 2, 3, 4);
  cell.micro_batches = GENERATE(1, 2, 4, 7);
  Check(cell);
}

TEST_CASE("parity: two stages a rank, in turn and as a V", "[parity][cpu]") {
  Cell cell = Base();
  cell.schedule = GENERATE("interleaved", "zb_v");
  cell.pipeline = GENERATE(1, 2);
  cell.micro_batches = GENERATE(1, 2, 3, 5, 8);
  Check(cell);
}

TEST_CASE("parity: a V over more ranks", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "internvl-llama");
  cell.schedule = "zb_v";
  cell.pipeline = GENERATE(3, 4);
  cell.micro_batches = GENERATE(1, 4, 9);
  Check(cell);
}

TEST_CASE("parity: data ranks beside pipeline ranks", "[parity][cpu]") {
  Cell cell = Base();
  cell.schedule = GENERATE("gpipe", "1f1b", "zb_h1", "interleaved", "zb_v");
  cell.pipeline = 2;
  cell.data = GENERATE(2, 3);
  cell.zero = GENERATE(0, 1);
  cell.micro_batches = 6;
  Check(cell);
}

TEST_CASE("parity: balanced micro-batches, and modalities that are absent", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "internvl-llama");
  cell.modality = GENERATE("balanced", "text", "pictures", "mixed");
  cell.schedule = GENERATE("gpipe", "1f1b", "zb_h1");
  cell.data = GENERATE(1, 2);
  cell.pipeline = 3;
  cell.stage_begins = GENERATE(std::vector<int>{0, 2, 4, 8}, std::vector<int>{0, 1, 6, 8});
  Check(cell);
}

// Three pipeline ranks, of which the encoder has one or two.
Cell EncoderApart(const std::string& schedule) {
  Cell cell;
  cell.schedule = schedule;
  cell.pipeline = 3;
  cell.encoder_ranks = 1;
  return cell;
}

TEST_CASE("parity: an encoder on ranks of its own", "[parity][cpu]") {
  Cell cell = EncoderApart(GENERATE("naive", "gpipe", "1f1b", "zb_h1", "interleaved", "zb_v"));
  cell.model = GENERATE("internvl-qwen2", "internvl-llama");
  cell.modality = GENERATE("mixed", "text", "pictures");
  cell.micro_batches = GENERATE(1, 4, 7);
  Check(cell);
}

TEST_CASE("parity: a frozen encoder on a rank of its own", "[parity][cpu]") {
  Cell cell = EncoderApart(GENERATE("gpipe", "1f1b", "zb_h1", "interleaved", "zb_v"));
  cell.freeze = GENERATE(std::vector<std::string>{"vision"}, std::vector<std::string>{"llm"},
                         std::vector<std::string>{"vision", "projector"});
  cell.recompute = GENERATE("none", "vision+llm");
  Check(cell);
}

TEST_CASE("parity: an encoder on ranks of its own, data and tensor ranks", "[parity][cpu]") {
  Cell cell = EncoderApart(GENERATE("gpipe", "1f1b", "zb_h1", "interleaved", "zb_v"));
  cell.encoder_ranks = GENERATE(1, 2);
  cell.data = GENERATE(1, 2);
  cell.tensor = GENERATE(1, 2);
  cell.zero = cell.data - 1;
  cell.micro_batches = 6;
  Check(cell);
}

TEST_CASE("parity: frozen modules and recompute", "[parity][cpu]") {
  Cell cell;
  cell.schedule = GENERATE("1f1b", "zb_h1", "interleaved", "zb_v");
  cell.pipeline = 2;
  cell.freeze = GENERATE(std::vector<std::string>{"vision"}, std::vector<std::string>{"llm"},
                         std::vector<std::string>{"vision", "llm"},
                         std::vector<std::string>{"projector"}, std::vector<std::string>{});
  cell.recompute = GENERATE("none", "vision+llm");
  Check(cell);
}

TEST_CASE("parity: recompute by layer on uneven stages", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "internvl-llama");
  cell.recompute = GENERATE("attention", "mlp", "random 1", "random 2");
  cell.schedule = GENERATE("1f1b", "zb_h1");
  cell.pipeline = 2;
  cell.stage_begins = GENERATE(std::vector<int>{0, 1, 8}, std::vector<int>{0, 6, 8});
  Check(cell);
}

TEST_CASE("parity: tensor ranks", "[parity][cpu]") {
  Cell cell = Base();
  cell.tensor = GENERATE(2, 3);
  cell.pipeline = GENERATE(1, 2);
  cell.schedule = GENERATE("1f1b", "zb_h1", "gpipe");
  cell.modality = GENERATE("mixed", "text");
  Check(cell);
}

TEST_CASE("parity: data x pipeline x tensor", "[parity][cpu]") {
  Cell cell = Base();
  cell.data = cell.pipeline = cell.tensor = 2;
  cell.schedule = GENERATE("naive", "gpipe", "1f1b", "zb_h1", "interleaved", "zb_v");
  cell.zero = GENERATE(0, 1);
  cell.recompute = GENERATE("none", "llm");
  Check(cell);
}

TEST_CASE("parity: bf16", "[parity][cpu]") {
  Cell cell = Base();
  cell.precision = "bf16";
  cell.schedule = GENERATE("gpipe", "1f1b", "zb_h1", "interleaved", "zb_v");
  cell.pipeline = 2;
  cell.data = GENERATE(1, 2);
  cell.zero = GENERATE(0, 1);
  cell.tensor = GENERATE(1, 2);
  Check(cell);
}

}  // namespace
}  // namespace equipoise::testing
