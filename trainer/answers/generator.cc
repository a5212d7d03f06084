#include "trainer/answers/generator.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "models/layers/kv_cache.h"
#include "parallel/device.h"

namespace equipoise {
namespace {

// A micro-batch of one row of tokens, the first of which has position `first`.
MicroBatch Row(const std::vector<int32_t>& ids, int64_t first, KvCache* cache) {
  const auto n = static_cast<int64_t>(ids.size());
  MicroBatch batch;
  batch.input_ids = at::empty({n}, at::kLong);
  std::copy(ids.begin(), ids.end(), batch.input_ids.data_ptr<int64_t>());
  batch.position_ids = at::arange(first, first + n, at::kLong);
  batch.cu_seqlens = {0, n};
  batch.cache = cache;
  return batch;
}

at::Tensor PositionsOf(const at::Tensor& ids, int64_t token) {
  return ids.eq(token).nonzero().reshape({-1});
}

// The next token: argmax at temperature 0, else a sample of softmax(logits / temperature) by
// inverse transform sampling.
int32_t SampleToken(const at::Tensor& logits, double temperature, std::mt19937_64& random) {
  if (temperature <= 0) return static_cast<int32_t>(logits.argmax().item<int64_t>());
  const at::Tensor p = at::softmax(logits.to(at::kDouble).div(temperature), 0).contiguous();
  const double* probability = p.data_ptr<double>();
  double rest = std::uniform_real_distribution<double>(0, 1)(random);
  int64_t token = 0;
  while (token + 1 < p.size(0) && (rest -= probability[token]) >= 0) ++token;
  return static_cast<int32_t>(token);
}

}  // namespace

std::vector<int32_t> Generator::Continue(const std::vector<int32_t>& prompt,
                                         const at::Tensor& pixel_values,
                                         const std::vector<int32_t>& stop_ids,
                                         const GenerateOptions& options) {
  KvCache cache;
  const at::Device device = stage_->parameters().front()->value.device();
  MicroBatch batch = Row(prompt, 0, &cache);
  if (pixel_values.defined()) {
    batch.pixel_values = ToDevice(pixel_values, device);
    batch.image_positions = PositionsOf(batch.input_ids, config_->image_token_id);
  }
  std::mt19937_64 random(options.seed);
  std::vector<int32_t> answer;
  auto length = static_cast<int64_t>(prompt.size());
  while (static_cast<int64_t>(answer.size()) < options.max_new_tokens) {
    const at::Tensor logits = stage_->Evaluate(OnDevice(batch, device), at::Tensor());
    const int32_t token =
        SampleToken(logits[logits.size(0) - 1].cpu(), options.temperature, random);
    if (std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end()) break;
    answer.push_back(token);
    batch = Row({token}, length++, &cache);
  }
  return answer;
}

}  // namespace equipoise
