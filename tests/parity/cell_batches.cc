#include "tests/parity/cell_batches.h"

#include <ATen/ATen.h>

#include <random>
#include <string>

#include "tests/models/model_support.h"

namespace equipoise::testing {
namespace {

// Any mix of pictures, text and nothing; a whole step may lack either.
std::vector<MicroBatch> RandomBatches(const Cell& cell, const ModelConfig& config) {
  std::mt19937 dice(static_cast<unsigned>(std::stoul(cell.modality.substr(6))));
  const unsigned pictures = dice() % 4, text = 1 + dice() % 4;  // out of 4
  std::vector<MicroBatch> batches;
  for (int i = 0; i < cell.micro_batches; ++i) {
    // The first one always has targets.
    const bool empty = i > 0 && dice() % 4 >= text;
    const bool with_tiles = config.has_vision && !empty && dice() % 4 < pictures;
    const int64_t tiles = with_tiles ? 1 + static_cast<int64_t>(dice() % 3) : 0;
    std::vector<int64_t> lengths;
    if (!empty)
      lengths = {14 + static_cast<int64_t>(dice() % 9), 1 + static_cast<int64_t>(dice() % 7)};
    batches.push_back(RandomBatch(config, lengths, tiles, dice()));
  }
  return batches;
}

std::vector<MicroBatch> FloatBatches(const Cell& cell, const ModelConfig& config) {
  if (cell.modality.rfind("random", 0) == 0) return RandomBatches(cell, config);
  std::vector<MicroBatch> batches;
  for (int i = 0; i < cell.micro_batches; ++i) {
    if (cell.modality == "balanced") {  // each asks the same of every stage
      batches.push_back(RandomBatch(config, {16, 8}, config.has_vision ? 2 : 0, 900 + i));
      continue;
    }
    int64_t tiles = 0;
    const bool blank = cell.modality == "blank";
    if (config.has_vision && (cell.modality == "pictures" || cell.modality == "long" || blank))
      tiles = 1 + i % 3;
    // Every second one has pictures, and one of four no tokens at all.
    if (config.has_vision && cell.modality == "mixed") tiles = i % 2 == 1 ? 1 + i % 3 : 0;
    const bool empty = cell.modality == "mixed" && i % 4 == 2;
    std::vector<int64_t> lengths;
    if (!empty) lengths = {14 + 3 * (i % 4), 5 + i % 2};
    if (cell.modality == "long") lengths = {70 + 9 * (i % 3), 7, 40};
    batches.push_back(RandomBatch(config, lengths, tiles, 900 + i));
    // As of samples whose pictures could not be read: every second one has no targets.
    if (blank && i % 2 == 1) batches.back().targets.fill_(-100);
  }
  return batches;
}

}  // namespace

std::vector<MicroBatch> CellBatches(const Cell& cell, const ModelConfig& config) {
  std::vector<MicroBatch> batches = FloatBatches(cell, config);
  for (MicroBatch& batch : batches) {
    if (batch.tiles() == 0) continue;
    batch.pixel_values = batch.pixel_values.mul(60).add(128).clamp(0, 255).to(at::kByte);
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    batches[i].noise = i + 1;
    batches[i].samples = {static_cast<int64_t>(i)};
  }
  return batches;
}

double TotalWeight(const std::vector<MicroBatch>& batches) {
  double sum = 0;
  for (const MicroBatch& batch : batches) {
    if (batch.tokens() == 0) continue;
    sum += batch.target_weights.masked_select(batch.targets.ne(-100)).sum().item<double>();
  }
  return sum;
}

}  // namespace equipoise::testing
