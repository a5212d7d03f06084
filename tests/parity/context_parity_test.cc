// Context parallelism in the parity matrix, ranks as threads: ranks that share out the tokens and
// the pictures of each micro-batch give the loss and the gradients of one process; schedules and
// pipeline ranks change no bit.

#include <ATen/Parallel.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>

#include "models/families/families.h"
#include "models/families/modules.h"
#include "parallel/schedule/builders.h"
#include "tests/parity/cell.h"

namespace equipoise::testing {
namespace {

void Check(Cell cell) {
  at::set_num_threads(1);
  if (cell.pipeline > 1) {
    const int chunks = std::max(cell.chunks, FindSchedule(cell.schedule)->fewest_chunks);
    cell.stage_begins = StagesWithPicturesFirst(cell.model, cell.pipeline * chunks);
  }
  INFO(ToString(cell));
  const CellResult result = RunCell(cell), &one = Known(InOneProcess(cell));
  const CellErrors errors = Compare(result, one);
  // Without a pipeline; ZeRO 2 and 3 add micro-batches over ranks first, a tied weight in two
  // stages is summed over them first.
  const bool tied = cell.model.starts_with("qwen2-tied") || cell.model == "qwen2_vl";
  const bool same_sums = cell.zero < 2 && !(tied && cell.pipeline > 1);
  const bool same_bits = SameBits(result, Known(WithoutPipeline(cell)));
  std::printf("cell\t%s\n", Row(cell, errors, same_bits).c_str());
  INFO(ToString(errors));
  CHECK(WithinRounding(cell, errors, one));
  CHECK(result.copies_agree);
  if (same_sums) CHECK(same_bits);
}

TEST_CASE("context parity: models", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "internvl-llama", "internvl-qwen3", "internvl-internlm2",
                        "llava-llama", "llava_next-llama", "llava_onevision-qwen2", "qwen2_vl",
                        "qwen2_5_vl", "qwen2-tied");
  cell.context = GENERATE(2, 3);
  cell.modality = GENERATE("mixed", "pictures");
  Check(cell);
}

TEST_CASE("context parity: modalities", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "llava_next-llama", "qwen2_5_vl");
  cell.modality = GENERATE("balanced", "text", "blank", "random 3", "random 5", "random 8");
  cell.context = GENERATE(2, 4);
  cell.micro_batches = 7;
  Check(cell);
}

// Four heads, two of keys in some models: as many head groups as divide them, and in each of these
// ranks with rows of all segments, or with whole segments where these are short.
TEST_CASE("context parity: ranks that share out the rows of a head", "[parity][cpu]") {
  Cell cell;
  cell.modality = GENERATE("long", "mixed", "text");
  SECTION("more ranks than heads") {
    cell.model = GENERATE("internvl-llama", "internvl-qwen3", "qwen2_5_vl");
    cell.context = GENERATE(6, 8);
  }
  SECTION("tensor ranks, of two heads each") {
    cell.model = GENERATE("internvl-qwen2", "internvl-qwen3");
    cell.tensor = 2;
    cell.sequence = GENERATE(false, true);
    cell.context = 4;
    cell.recompute = GENERATE("none", "random 1");
  }
  SECTION("frozen modules, ZeRO and pipeline ranks") {
    cell.context = 3;
    cell.data = 2;
    cell.zero = GENERATE(1, 3);
    cell.pipeline = GENERATE(1, 2);
    cell.freeze = GENERATE(std::vector<std::string>{}, std::vector<std::string>{"vision", "llm"});
  }
  SECTION("16 bits") {
    cell.context = 3;
    cell.precision = GENERATE("bf16", "fp16");
  }
  SECTION("adapters") {
    cell.model = GENERATE("internvl-qwen2+lora", "qwen2-tied+dropout");
    cell.context = 3;
  }
  Check(cell);
}

TEST_CASE("context parity: features that are added behind decoder layers", "[parity][cpu]") {
  Cell cell;
  cell.model = "qwen3_vl";
  cell.modality = GENERATE("mixed", "pictures", "text", "random 5");
  cell.context = GENERATE(2, 3);
  cell.micro_batches = 5;
  SECTION("alone") { cell.precision = GENERATE("fp32", "bf16"); }
  SECTION("data and tensor ranks") {
    cell.data = cell.tensor = cell.context = 2;  // four heads
    cell.sequence = GENERATE(false, true);
    cell.zero = 3;
    cell.recompute = "random 1";
  }
  SECTION("pipeline ranks") {
    cell.pipeline = 2;
    cell.schedule = GENERATE("1f1b", "zb_h1");
  }
  SECTION("frozen modules") {
    cell.freeze = GENERATE(std::vector<std::string>{"vision"}, std::vector<std::string>{"llm"},
                           std::vector<std::string>{"vision", "projector"});
  }
  Check(cell);
}

TEST_CASE("context parity: data ranks and ZeRO", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "qwen2-tied");
  cell.data = GENERATE(1, 2);
  cell.context = GENERATE(2, 3);
  cell.zero = GENERATE(0, 1, 2, 3);
  cell.recompute = GENERATE("none", "random 1");
  Check(cell);
}

TEST_CASE("context parity: schedules and pipeline ranks", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "qwen2-tied", "qwen2_5_vl");
  cell.context = 2;
  cell.data = GENERATE(1, 2);
  cell.pipeline = 2;
  cell.schedule = GENERATE("naive", "gpipe", "1f1b", "zb_h1");
  cell.zero = GENERATE(0, 1, 3);
  cell.micro_batches = 6;
  Check(cell);
}

TEST_CASE("context parity: tensor ranks, with and without sequence parallelism", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "internvl-llama", "qwen2-tied", "internvl-qwen3");
  cell.context = cell.tensor = 2;
  cell.sequence = GENERATE(false, true);
  cell.data = GENERATE(1, 2);
  cell.zero = cell.data - 1;
  cell.modality = GENERATE("mixed", "random 3");
  Check(cell);
}

TEST_CASE("context parity: recompute", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2", "internvl-llama");
  cell.context = 2;
  cell.tensor = GENERATE(1, 2);
  cell.sequence = cell.tensor > 1;
  cell.recompute = GENERATE("vision+llm", "attention", "mlp", "random 2");
  Check(cell);
}

TEST_CASE("context parity: frozen modules", "[parity][cpu]") {
  Cell cell;
  cell.context = GENERATE(2, 3);
  cell.schedule = GENERATE("1f1b", "zb_h1");
  cell.freeze =
      GENERATE(std::vector<std::string>{"vision"}, std::vector<std::string>{"llm"},
               std::vector<std::string>{"vision", "llm"}, std::vector<std::string>{"projector"},
               std::vector<std::string>{"vision", "projector"});
  cell.recompute = GENERATE("none", "vision+llm");
  Check(cell);
}

TEST_CASE("context parity: adapters", "[parity][cpu]") {
  Cell cell;
  cell.model = GENERATE("internvl-qwen2+lora", "qwen2-tied+lora", "qwen2-tied+dropout",
                        "internvl-qwen2+dora", "internvl-llama+int8");
  cell.context = 2;
  cell.tensor = GENERATE(1, 2);
  cell.sequence = cell.tensor > 1;
  cell.zero = GENERATE(1, 3);
  Check(cell);
}

TEST_CASE("context parity: bf16 and fp16", "[parity][cpu]") {
  Cell cell;
  cell.precision = GENERATE("bf16", "fp16");
  cell.model = GENERATE("internvl-qwen2", "internvl-llama", "qwen2-tied");
  cell.context = GENERATE(2, 3);
  cell.zero = GENERATE(0, 1, 3);
  Check(cell);
}

}  // namespace
}  // namespace equipoise::testing
