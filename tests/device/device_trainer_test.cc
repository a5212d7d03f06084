// What the trainer does beside the passes, on the stand-in of a GPU as on the CPU: weights from
// seeds and files, files from weights.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <map>

#include "models/families/families.h"
#include "models/weights/safetensors.h"
#include "models/weights/weights.h"
#include "parallel/comm/single_communicator.h"
#include "tests/device/gpu_stand_in.h"
#include "tests/models/load_of.h"
#include "tests/models/model_support.h"
#include "tests/trainer/scratch_folder.h"
#include "trainer/answers/generator.h"
#include "trainer/checkpoint/loaded_model.h"
#include "trainer/device/memory_stats.h"

namespace equipoise {
namespace {

using testing::Normal;
using testing::TinyInternVl;

const at::Device kGpu(at::kCUDA, 0);

LoadedModel RandomModel(at::Device device, at::ScalarType dtype) {
  LoadOptions options;
  options.dtype = dtype;
  options.device = device;
  options.inference = true;
  LoadedModel model = BuildModel(TinyInternVl(/*large_form=*/false), options);
  InitializeWeights(model.parameters->parameters(), model.config, /*seed=*/7);
  model.parameters->UpdateCompute();
  return model;
}

TEST_CASE("a seed draws the same weights on a device", "[device]") {
  const LoadedModel cpu = RandomModel(at::kCPU, at::kFloat), gpu = RandomModel(kGpu, at::kFloat);
  CHECK(gpu.parameters->compute().is_cuda());
  CHECK(gpu.parameters->compute().cpu().equal(cpu.parameters->compute()));
}

TEST_CASE("tensors of a device are written and read", "[device]") {
  const ScratchFolder folder;
  const std::string path = folder.Path("model.safetensors");
  const at::Tensor x = Normal({6, 4}, 1), y = Normal({5}, 2).to(at::kBFloat16);
  WriteSafetensors(path, {{"x", x.to(kGpu)}, {"y", y.to(kGpu)}});
  const SafetensorsReader reader(path);
  CHECK(reader.Read("x").equal(x));
  CHECK(reader.Read("y").equal(y));
  const at::TensorOptions there = at::TensorOptions(kGpu).dtype(at::kFloat);
  at::Tensor whole = at::empty({6, 4}, there), columns = at::empty({6, 2}, there),
             some = at::empty({3}, there), wide = at::empty({5}, there);
  reader.ReadInto("x", whole);
  reader.ReadInto("x", columns, {.dim = 1, .begin = 1, .whole = 4});
  reader.ReadElements("x", 5, some);
  reader.ReadInto("y", wide);
  CHECK(whole.cpu().equal(x));
  CHECK(columns.cpu().equal(x.narrow(1, 1, 2)));
  CHECK(some.cpu().equal(x.flatten().narrow(0, 5, 3)));
  CHECK(wide.cpu().equal(y.to(at::kFloat)));
}

TEST_CASE("a device gives the CPU's answers", "[device]") {
  const at::ScalarType dtype = GENERATE(at::kFloat, at::kBFloat16);
  const ModelConfig config = TinyInternVl(/*large_form=*/false);
  const ImageSpec images = ImageSpecOf(config);
  Prompt seen{{3, 5}, images.LoadOfTiles(1), Normal({1, 3, 16, 16}, 4), {}, {}, 0};
  seen.ids.insert(seen.ids.end(), static_cast<size_t>(images.tokens_per_tile),
                  static_cast<int32_t>(config.image_token_id));
  seen.ids.insert(seen.ids.end(), {9, 11, 2});
  const Prompt text{{4, 8, 15}, {}, {}, {}, {}, 1};
  GenerateOptions options;
  options.max_new_tokens = 6;
  options.temperature = GENERATE(0.0, 0.7);
  const auto answer = [&](at::Device device) {
    Plan plan = InlinePlan({});
    plan.stage_begins = {0, static_cast<int>(LayerSpecs(config).size())};
    ParallelModel::Options on;
    on.part.inference = true;
    on.part.dtype = dtype;
    on.part.device = device;
    SingleCommunicator world;
    TimelineRecorder recorder(0);
    ParallelModel model(config, plan, on, world, recorder);
    InitializeWeights(model.parameters().parameters(), config, /*seed=*/7);
    model.parameters().UpdateCompute();
    return Generator(model).Continue({{seen, text}}, {}, options);
  };
  const auto of_gpu = answer(kGpu);
  if (dtype == at::kFloat) {
    CHECK(of_gpu == answer(at::kCPU));
    return;
  }
  // Where bf16 is rounded, and so which of two near tokens is drawn, depends on the CPU.
  REQUIRE(of_gpu.size() == 1);
  for (const std::vector<int32_t>& tokens : of_gpu[0]) {
    CHECK(tokens.size() == 6);
    for (const int32_t token : tokens) CHECK((0 <= token && token < config.text.vocab_size));
  }
}

TEST_CASE("memory of a device is what its allocator says", "[device]") {
  const int64_t before = GetMemory(kGpu).current_bytes;
  const auto take = [](int64_t bytes) {
    return at::empty({bytes}, at::TensorOptions(kGpu).dtype(at::kByte));
  };
  take(1 << 20);
  CHECK(GetMemory(kGpu).current_bytes == before);
  const int64_t peak = GetMemory(kGpu).peak_bytes;
  CHECK(peak >= before + (1 << 20));
  MarkMemory(kGpu);
  const at::Tensor held = take(1 << 10);
  CHECK(GetMemory(kGpu).current_bytes == before + (1 << 10));
  CHECK(GetMemory(kGpu).marked_peak_bytes == before + (1 << 10));
  CHECK(GetMemory(kGpu).peak_bytes == peak);  // a mark takes nothing back
}

// Bytes of a device that a micro-batch in flight keeps, and the most that its passes take.
struct InFlight {
  int64_t kept, peak, on_host;
};

InFlight BytesInFlight(Recompute recompute) {
  ModelConfig config = testing::TinyText("qwen2", /*tied=*/false);
  config.text.num_hidden_layers = 12;
  LoadOptions options;
  options.device = kGpu;
  LoadedModel model = BuildModel(config, options);
  InitializeWeights(model.parameters->parameters(), config, /*seed=*/7);
  for (const auto& layer : model.stage->layers()) layer->recompute = recompute;
  MicroBatch batch = testing::RandomBatch(config, {300, 200}, 0, 3);
  for (at::Tensor* each :
       {&batch.input_ids, &batch.position_ids, &batch.targets, &batch.target_weights})
    *each = each->to(kGpu);
  const int64_t before = GetMemory(kGpu).current_bytes;
  MarkMemory(kGpu);
  model.stage->Forward(0, batch, {}, 1.0);
  const InFlight bytes = {GetMemory(kGpu).current_bytes - before, 0,
                          model.stage->offloaded_bytes()};
  model.stage->Backward(0, {});
  return {bytes.kept, GetMemory(kGpu).marked_peak_bytes - before, bytes.on_host};
}

TEST_CASE("offloaded activations leave the device until backward", "[device]") {
  const InFlight whole = BytesInFlight(Recompute::kNone), again = BytesInFlight(Recompute::kFull),
                 offloaded = BytesInFlight(Recompute::kOffload),
                 inputs = BytesInFlight(Recompute::kFullOffload);
  CHECK(whole.on_host == 0);
  CHECK(again.on_host == 0);
  // Of twelve blocks the last is on the device, and what the head and the statistics take.
  CHECK(offloaded.on_host > whole.kept * 3 / 4);
  CHECK(offloaded.kept < whole.kept / 4);
  CHECK(offloaded.peak < whole.peak / 2);
  CHECK(inputs.on_host == 12 * 500 * 32 * 4);
  CHECK(inputs.kept < again.kept);
  CHECK(inputs.peak < again.peak);
}

// The most that a step takes of a device's memory, which one rank has for itself.
int64_t PeakOfStep(ShardedState offloaded, at::ScalarType dtype) {
  ModelConfig config = testing::TinyText("qwen2", /*tied=*/false);
  config.text.num_hidden_layers = 24;
  const int64_t before = GetMemory(kGpu).current_bytes;
  Plan plan = InlinePlan({});
  plan.stage_begins = {0, static_cast<int>(LayerSpecs(config).size())};
  plan.sharded = ShardedState::kParameters;
  plan.offloaded = offloaded;
  ParallelModel::Options on;
  on.part.dtype = dtype;
  on.part.device = kGpu;
  SingleCommunicator world;
  TimelineRecorder recorder(0);
  ParallelModel model(config, plan, on, world, recorder);
  model.parameters().SetWeights([&config](const std::vector<Parameter*>& some) {
    InitializeWeights(some, config, /*seed=*/7);
  });
  const MicroBatch batch = testing::RandomBatch(config, {6, 5}, 0, 3);
  ModelPart::Pass pass;
  pass.batch = [&batch](int) -> const MicroBatch& { return batch; };
  pass.loads = {LoadOf(config, 0, 11)};
  MarkMemory(kGpu);
  model.RunStep(pass);
  CHECK(model.parameters().gradient().is_cpu() == (offloaded >= ShardedState::kGradients));
  CHECK(model.parameters().compute().is_cpu() == (offloaded >= ShardedState::kParameters));
  return GetMemory(kGpu).marked_peak_bytes - before;
}

TEST_CASE("gradients and parameters in host memory leave the device but for some layers'",
          "[device]") {
  const at::ScalarType dtype = GENERATE(at::kFloat, at::kBFloat16);
  // Of a layer; the embedding and the head have less. Frozen ones there are none.
  const int64_t layer = LayerSpecs(testing::TinyText("qwen2", false))[1].parameter_count();
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t whole = PeakOfStep(ShardedState::kNone, dtype),
                gradients = PeakOfStep(ShardedState::kGradients, dtype),
                all = PeakOfStep(ShardedState::kParameters, dtype);
  // Left are the gradients of a layer, those that leave, and what was there of these; and the
  // weights of two layers, and of a third on its way. Parameters begin at multiples of 256
  // elements.
  const int64_t most = layer * 3 / 2;
  CHECK(whole - gradients > 24 * layer * 4 - 3 * most * 4);
  CHECK(gradients - all > 24 * layer * element - 3 * most * element);
  CHECK(all < whole / 3);
}

}  // namespace
}  // namespace equipoise
