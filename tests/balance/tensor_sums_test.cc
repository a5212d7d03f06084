// The sums over tensor ranks that the cost model charges for a step beside those that the model
// does.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "models/families/families.h"
#include "models/spec/layer_spec.h"
#include "parallel/comm/single_communicator.h"
#include "tests/models/model_support.h"

namespace equipoise::testing {
namespace {

using Bytes = std::vector<double>;

// A group of `size` ranks of which only this one exists.
class NotingCommunicator : public SingleCommunicator {
 public:
  explicit NotingCommunicator(int size) : size_(size) {}
  int size() const override { return size_; }
  Work AllReduce(at::Tensor& tensor, ReduceOp /*op*/) override {
    noted_.push_back(static_cast<double>(tensor.nbytes()));
    return {};
  }
  // Bytes of each sum since the last call, in ascending order.
  Bytes Take() {
    std::sort(noted_.begin(), noted_.end());
    return std::exchange(noted_, {});
  }

 private:
  int size_;
  Bytes noted_;
};

struct Pass {
  Bytes forward, backward;
};

Pass Charged(const ModelConfig& config, const LayerLoad& load, double element_bytes, int tensor) {
  Pass pass;
  const auto add = [&](const std::vector<TensorAllReduce>& sums, Bytes& bytes) {
    for (const TensorAllReduce& sum : sums) {
      const double elements = sum.elements.At(load) + sum.fixed;
      if (elements > 0) bytes.push_back((sum.fp32 ? 4 : element_bytes) * elements);
    }
  };
  for (const LayerSpec& spec : LayerSpecs(config, tensor)) {
    for (const HalfCost* half : {&spec.attention, &spec.mlp}) {
      add(half->all_reduces, pass.forward);
      add(half->gradient_all_reduces, pass.backward);
    }
  }
  std::sort(pass.forward.begin(), pass.forward.end());
  std::sort(pass.backward.begin(), pass.backward.end());
  return pass;
}

Pass Done(const ModelConfig& config, const MicroBatch& batch, at::ScalarType dtype, int tensor) {
  NotingCommunicator group(tensor);
  const TestModel model =
      MakeModel(config, dtype, {}, {}, TensorParallel{tensor > 1 ? &group : nullptr, 0, tensor});
  Pass pass;
  model.stage->Forward(/*id=*/0, batch, /*input=*/{}, /*loss_scale=*/1.0);
  pass.forward = group.Take();
  model.stage->Backward(/*id=*/0, /*grad_output=*/{});
  pass.backward = group.Take();
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
      const Pass charged = Charged(test.config, load, dtype == at::kFloat ? 4.0 : 2.0, test.tensor);
      const Pass done = Done(test.config, batch, dtype, test.tensor);
      CHECK(done.forward == charged.forward);
      CHECK(done.backward == charged.backward);
      CHECK(done.forward.empty() == (test.tensor == 1));
    }
  }
}

}  // namespace
}  // namespace equipoise::testing
