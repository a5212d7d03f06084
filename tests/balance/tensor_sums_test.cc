// The sums over tensor ranks that the cost model charges for a step beside those that the model
// does; with sequence parallelism the gathers and scatters of rows that take their place.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "models/families/families.h"
#include "models/spec/layer_spec.h"
#include "tests/balance/lone_rank.h"
#include "tests/models/model_support.h"

namespace equipoise::testing {
namespace {

using Bytes = LoneTensorRank::Bytes;

// Bytes of each all-reduce, and of each gather and scatter of rows.
struct Exchanged {
  Bytes sums, rows;
};

struct Pass {
  Exchanged forward, backward;
};

void AddRows(const std::vector<PerRow>& exchanges, const LayerLoad& load, double element_bytes,
             Bytes& bytes) {
  for (const PerRow& elements : exchanges) {
    if (elements.At(load) > 0) bytes.push_back(element_bytes * elements.At(load));
  }
}

void AddSums(const std::vector<TensorAllReduce>& sums, const LayerLoad& load, double element_bytes,
             bool sequence, Bytes& bytes) {
  for (const TensorAllReduce& sum : sums) {
    const double elements = sum.elements.At(load) + sum.fixed;
    if (elements == 0 || (sequence ? sum.of_rows : sum.of_shares)) continue;
    bytes.push_back((sum.fp32 ? 4 : element_bytes) * elements);
  }
}

Pass Charged(const ModelConfig& config, const LayerLoad& load, double element_bytes, int tensor,
             bool sequence) {
  Pass pass;
  for (const LayerSpec& spec : LayerSpecs(config, tensor)) {
    for (const HalfCost* half : {&spec.attention, &spec.mlp}) {
      AddSums(half->all_reduces, load, element_bytes, sequence, pass.forward.sums);
      AddSums(half->gradient_all_reduces, load, element_bytes, sequence, pass.backward.sums);
      if (!sequence) continue;
      AddRows(half->row_exchanges, load, element_bytes, pass.forward.rows);
      AddRows(half->gradient_row_exchanges, load, element_bytes, pass.backward.rows);
      AddRows(half->weight_row_exchanges, load, element_bytes, pass.backward.rows);
    }
  }
  for (Bytes* bytes :
       {&pass.forward.sums, &pass.forward.rows, &pass.backward.sums, &pass.backward.rows}) {
    std::sort(bytes->begin(), bytes->end());
  }
  return pass;
}

Pass Done(const ModelConfig& config, const MicroBatch& batch, at::ScalarType dtype, int tensor,
          bool sequence) {
  LoneTensorRank group(tensor);
  const TestModel model = MakeModel(
      config, dtype, {}, {}, TensorParallel{tensor > 1 ? &group : nullptr, 0, tensor, sequence});
  Pass pass;
  model.stage->Forward(/*id=*/0, batch, /*input=*/{}, /*loss_scale=*/1.0);
  pass.forward = {group.TakeSums(), group.TakeExchanges()};
  model.stage->Backward(/*id=*/0, /*grad_output=*/{});
  pass.backward = {group.TakeSums(), group.TakeExchanges()};
  return pass;
}

TEST_CASE("the sums of a step are those that the cost model charges", "[balance][cpu]") {
  struct Case {
    const char* name;
    ModelConfig config;
    int64_t tiles;
    int tensor;
  };
  ModelConfig one_key = TinyText("qwen2", /*tied=*/false);
  one_key.text.num_key_value_heads = 1;
  const std::vector<Case> cases = {
      {"300M form", TinyInternVl(/*large_form=*/false), 2, 2},
      {"6B form", TinyInternVl(/*large_form=*/true), 2, 2},
      {"text alone in a micro-batch", TinyInternVl(/*large_form=*/false), 0, 2},
      {"llama", TinyText("llama", /*tied=*/true), 0, 2},
      {"one key head for all ranks", one_key, 0, 2},
      {"norms of q and k", TinyText("qwen3", /*tied=*/false), 0, 2},
      {"grids of patches", TinyQwenVl(/*windows=*/false), 2, 2},
      {"windows", TinyQwenVl(/*windows=*/true), 2, 3},
      {"features", TinyQwen3Vl(), 2, 2},
      {"features over three ranks", TinyQwen3Vl(), 2, 3},
      {"any resolution", TinyLlavaNext(), 2, 3},
      {"patches brought down", TinyLlavaOnevision(), 1, 2},
      {"a square and a video", TinyLlavaOnevision(), 2, 3},
      {"sequence over three ranks", TinyInternVl(/*large_form=*/false), 2, 3},
      {"no tensor ranks", TinyInternVl(/*large_form=*/true), 2, 1},
  };
  for (const Case& test : cases) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      INFO(test.name << ", " << c10::toString(dtype));
      const int64_t tokens = 4 * test.tiles + 16;  // no tile has more
      MicroBatch batch = RandomBatch(test.config, {tokens}, test.tiles, /*seed=*/1);
      batch.targets = batch.input_ids;
      batch.target_weights.reset();
      LayerLoad load = SingleSegment(PicturesOf(batch, ImageSpecOf(test.config)), tokens);
      load.targets = tokens;
      for (const bool sequence : {false, true}) {
        if (sequence && test.tensor == 1) continue;
        INFO("sequence " << sequence);
        const double element_bytes = dtype == at::kFloat ? 4.0 : 2.0;
        const Pass charged = Charged(test.config, load, element_bytes, test.tensor, sequence);
        const Pass done = Done(test.config, batch, dtype, test.tensor, sequence);
        CHECK(done.forward.sums == charged.forward.sums);
        CHECK(done.forward.rows == charged.forward.rows);
        CHECK(done.backward.sums == charged.backward.sums);
        CHECK(done.backward.rows == charged.backward.rows);
        CHECK(done.forward.sums.empty() == (test.tensor == 1));
        CHECK(done.backward.rows.empty() == !sequence);
      }
    }
  }
}

}  // namespace
}  // namespace equipoise::testing
