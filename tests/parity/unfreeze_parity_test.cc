// Parts of frozen modules that are trained (model.unfreeze), on meshes: the loss and the gradients
// of one process, and the bits of a mesh that differs in the pipeline or in ZeRO alone. What is
// frozen has no gradient and keeps its bits, all else moves.

#include <ATen/Parallel.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "models/families/families.h"
#include "tests/parity/cell.h"

namespace equipoise::testing {
namespace {

using Words = std::vector<std::string>;

// Names of the parameters that a cell trains.
std::set<std::string> TrainedIn(const Cell& cell) {
  std::set<std::string> names;
  for (const LayerSpec& spec : LayerSpecs(ModelOf(cell))) {
    if (!IsTrained(spec, cell.freeze)) continue;
    for (const TensorSpec& tensor : spec.parameters) {
      if (MayTrain(tensor.role)) names.insert(tensor.name);
    }
  }
  return names;
}

void CheckMoves(const Cell& cell, const CellResult& result) {
  const std::set<std::string> trained = TrainedIn(cell);
  size_t frozen = 0;
  for (const auto& [name, weight] : result.weights) {
    INFO(name);
    const bool moved = !IsFrozenAt(FirstWeight(name, weight.sizes().vec()), weight);
    const auto gradient = result.gradients.find(name);
    const bool has_gradient =
        gradient != result.gradients.end() && gradient->second.count_nonzero().item<int64_t>() > 0;
    if (trained.count(name) > 0) {
      CHECK((moved || IsZeroInExactArithmetic(name)));
    } else {
      CHECK_FALSE(moved);
      CHECK_FALSE(has_gradient);
      ++frozen;
    }
  }
  CHECK(frozen > 0);
  CHECK(frozen + trained.size() == result.weights.size());
}

// `same_bits`: of the mesh without a pipeline and ZeRO.
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
  CheckMoves(cell, result);
}

// The same of all rows, of which the first two are a recipe of InternVL's and one of
// LLaMA-Factory's; then parts of blocks.
void Choose(Cell& cell) {
  std::tie(cell.freeze, cell.unfreeze) = GENERATE(
      table<Words, Words>({{{"vision"}, {"vision[-1:]"}},
                           {{"llm", "vision"}, {"llm[-1:]", "lm_head"}},
                           {{"llm", "vision", "projector"}, {"llm[:1]", "vision_tower.*mlp"}},
                           {{"vision", "llm"}, {"self_attn", "norm"}}}));
}

TEST_CASE("unfreeze parity: schedules, data and tensor ranks", "[parity][cpu]") {
  Cell cell;
  Choose(cell);
  cell.model = GENERATE("internvl-qwen2", "internvl-llama");
  cell.schedule = GENERATE("gpipe", "1f1b", "zb_h1", "interleaved", "zb_v");
  cell.pipeline = 2;
  std::tie(cell.data, cell.tensor) = GENERATE(table<int, int>({{1, 1}, {2, 1}, {1, 2}}));
  cell.zero = cell.data - 1;
  cell.recompute = GENERATE("none", "random 1");
  Check(cell);
}

TEST_CASE("unfreeze parity: 16 bits", "[parity][cpu]") {
  Cell cell;
  Choose(cell);
  cell.precision = GENERATE("bf16", "fp16");
  cell.pipeline = 2;
  cell.schedule = GENERATE("1f1b", "zb_v");
  Check(cell);
}

TEST_CASE("unfreeze parity: ZeRO 2 and 3", "[parity][cpu]") {
  Cell cell;
  Choose(cell);
  cell.zero = GENERATE(2, 3);
  cell.data = 2;
  cell.pipeline = GENERATE(1, 2);
  cell.schedule = GENERATE("1f1b", "zb_h1");
  cell.recompute = GENERATE("none", "vision+llm");
  cell.micro_batches = 2;
  Check(cell);
}

TEST_CASE("unfreeze parity: sequence parallelism, and context ranks", "[parity][cpu]") {
  Cell cell;
  Choose(cell);
  SECTION("sequence") {
    cell.tensor = 2;
    cell.sequence = true;
    cell.pipeline = GENERATE(1, 2);
  }
  SECTION("context") {
    cell.context = 2;
    cell.zero = GENERATE(0, 1);
  }
  Check(cell);
}

TEST_CASE("unfreeze parity: an encoder apart, and in the bubbles", "[parity][cpu]") {
  Cell cell;
  Choose(cell);
  cell.schedule = GENERATE("gpipe", "1f1b", "zb_h1", "zb_v");
  cell.encoder = GENERATE(EncoderPlacement::kDisaggregated, EncoderPlacement::kThreePhase,
                          EncoderPlacement::kOptimus);
  cell.pipeline = FillsBubbles(cell.encoder) ? 2 : 3;
  // Copies of an encoder add its gradients in another order.
  Check(cell, !FillsBubbles(cell.encoder));
}

TEST_CASE("unfreeze parity: a tied weight, alone and where only its norm is trained",
          "[parity][cpu]") {
  Cell cell;
  cell.model = "qwen2-tied";
  cell.freeze = {"llm"};
  cell.unfreeze = GENERATE(Words{"llm[:1]", "lm_head"}, Words{"embed_tokens"}, Words{"model.norm"});
  cell.schedule = GENERATE("1f1b", "zb_h1", "zb_v");
  cell.pipeline = GENERATE(1, 2);
  std::tie(cell.data, cell.tensor, cell.zero) =
      GENERATE(table<int, int, int>({{1, 1, 0}, {2, 1, 1}, {2, 1, 3}, {1, 2, 0}}));
  // The head's share of a tied weight is added apart where it lies on another stage, and ZeRO 3
  // adds the ranks' gradients micro-batch by micro-batch.
  Check(cell, cell.unfreeze[0] == "model.norm" && cell.zero < 3);
}

TEST_CASE("unfreeze parity: pictures at their own size", "[parity][cpu]") {
  Cell cell;
  cell.model = "qwen2_5_vl";
  cell.freeze = {"vision", "projector"};
  cell.unfreeze = {GENERATE("vision[-1:]", "visual.blocks.1.attn")};
  cell.pipeline = 4;
  cell.schedule = GENERATE("1f1b", "zb_h1");
  cell.stage_begins = GENERATE(std::vector<int>{0, 1, 2, 3, 8}, std::vector<int>{0, 2, 3, 6, 8});
  Check(cell);
}

}  // namespace
}  // namespace equipoise::testing
