// print_angles CONFIG AXES LENGTH...   prints the cosines and then the sines of a model's rotary
// positions, for a row of segments of those lengths, as fp32 numbers of the machine. With AXES of 3
// the positions of a segment's token t are t, t / 2 and t / 3, as if it were of a grid; with 1, t.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "models/families/families.h"
#include "models/layers/micro_batch.h"
#include "models/layers/rotary_table.h"

namespace equipoise {
namespace {

void Print(const at::Tensor& numbers) {
  const at::Tensor whole = numbers.contiguous();
  std::fwrite(whole.const_data_ptr<float>(), sizeof(float), static_cast<size_t>(whole.numel()),
              stdout);
}

int Run(int argc, char** argv) {
  const ModelConfig config = ParseModelConfig(ReadJsonFile(argv[1]), argv[1]);
  MicroBatch batch;
  batch.cu_seqlens = {0};
  std::vector<at::Tensor> positions;
  for (int i = 3; i < argc; ++i) {
    const int64_t length = std::stoll(argv[i]);
    const at::Tensor one = at::arange(length, at::kLong);
    const bool grid = std::string(argv[2]) == "3";
    positions.push_back(grid ? at::stack({one, one.div(2, "floor"), one.div(3, "floor")}) : one);
    batch.cu_seqlens.push_back(batch.cu_seqlens.back() + length);
  }
  batch.position_ids = at::cat(positions, -1);
  RotaryTable table(config.text);
  const auto& [cos, sin] = table.At(batch);
  Print(cos);
  Print(sin);
  return 0;
}

}  // namespace
}  // namespace equipoise

int main(int argc, char** argv) {
  try {
    return equipoise::Run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
