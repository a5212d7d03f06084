// LLaVA-OneVision on meshes: a picture whose patches are brought down, squares with a vector behind
// each and a video give the loss and the gradients of one process, and the bits of a mesh that
// differs in the pipeline alone.

#include <ATen/Parallel.h>

#include <catch2/catch.hpp>
#include <string>
#include <tuple>

#include "tests/parity/cell.h"

namespace equipoise::testing {
namespace {

void Check(const Cell& cell) {
  at::set_num_threads(1);
  INFO(ToString(cell));
  const CellResult result = RunCell(cell);
  const CellErrors errors = Compare(result, Known(InOneProcess(cell)));
  INFO(ToString(errors));
  CHECK(errors.Within(BoundsOf(cell)));
  CHECK(SameBits(result, Known(WithoutPipeline(cell))));
}

TEST_CASE("parity: patches that are brought down, squares and videos", "[parity][cpu]") {
  Cell cell;
  cell.model = "llava_onevision-qwen2";
  cell.modality = GENERATE("mixed", "pictures");
  cell.pipeline = 2;
  std::tie(cell.data, cell.tensor) = GENERATE(table<int, int>({{2, 1}, {1, 2}, {1, 3}}));
  cell.zero = cell.data - 1;
  cell.recompute = GENERATE("none", "random 1");
  Check(cell);
}

}  // namespace
}  // namespace equipoise::testing
