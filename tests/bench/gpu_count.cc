#include "tests/bench/gpu_count.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <dlfcn.h>

#include <memory>
#include <set>

#include "balance/costs/cluster.h"
#include "balance/costs/cost_model.h"
#include "balance/costs/stage_costs.h"
#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/stages/model.h"
#include "models/stages/stage.h"
#include "parallel/device.h"
#include "parallel/timeline.h"
#include "parallel/zero/zero_optimizer.h"
#include "tests/bench/lone_rank.h"
#include "trainer/device/open_kernels.h"
#include "trainer/run/parallel_model.h"

namespace equipoise::testing {
namespace {

constexpr at::ScalarType kDtype = at::kBFloat16;
constexpr int64_t kElementBytes = 2;

at::Device Gpu(const GpuCountSettings& settings) {
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) throw ConfigError(dlerror());
  at::globalContext().lazyInitDevice(at::kCUDA);
  if (settings.own_kernels) UseOwnKernels(LoadOwnKernels());
  return {at::kCUDA, 0};
}

at::Tensor Empty(const std::vector<int64_t>& shape, at::Device device) {
  return at::empty(shape, at::TensorOptions(device).dtype(kDtype));
}

LayerWork CountLayer(const GpuCountSettings& settings, const LayerSpec& spec, int layer,
                     at::Device device) {
  Stage stage(BuildLayers(settings.model, {layer, layer + 1}));
  FlatParameters parameters(stage.parameters(), kDtype, /*shards=*/1, device);
  MicroBatch batch = OnDevice(RandomMicroBatch(settings.model, settings.row), device);
  batch.pixel_values = ToDevice(batch.pixel_values, device);
  const std::vector<int64_t> shape =
      spec.input.Shape(settings.row.load(ImageSpecOf(settings.model)));
  at::Tensor input, gradient;
  if (!shape.empty()) input = Empty(shape, device).set_requires_grad(true);
  const auto forward = [&] { return stage.Forward(0, batch, input, /*loss_scale=*/1.0); };
  const at::Tensor output = forward();
  if (output.dim() > 0) gradient = Empty(output.sizes().vec(), device);
  stage.Backward(0, gradient);

  LayerWork work;
  work.kind = spec.kind;
  {
    const DeviceWorkMeter meter;
    forward();
    work.forward = meter.Total();
    work.forward_operations = meter.ByOperation();
  }
  {
    const DeviceWorkMeter meter;
    stage.Backward(0, gradient);
    work.backward = meter.Total();
    work.backward_operations = meter.ByOperation();
  }
  return work;
}

Plan PlanOf(const GpuCountSettings& settings, const CostModel& costs, const LayerLoad& load) {
  Plan plan = InlinePlan({settings.data, settings.pipeline, settings.tensor});
  plan.schedule = settings.schedule;
  if (settings.data > 1) plan.sharded = ShardedState::kOptimizer;
  if (settings.recompute)
    plan.recompute.assign(static_cast<size_t>(costs.num_layers()), Recompute::kFull);
  // Stages of about equal time.
  std::vector<double> seconds;
  double total = 0;
  for (int i = 0; i < costs.num_layers(); ++i) {
    const LayerTimes times = costs.Times(i, load);
    seconds.push_back(times.forward_s + times.backward_s());
    total += seconds.back();
  }
  plan.stage_begins = {0};
  double sum = 0;
  for (int i = 0; i < costs.num_layers(); ++i) {
    const auto stages = static_cast<double>(settings.pipeline);
    const auto next = static_cast<double>(plan.stage_begins.size());
    if (i > plan.stage_begins.back() && next < stages && sum >= total * next / stages)
      plan.stage_begins.push_back(i);
    sum += seconds[static_cast<size_t>(i)];
  }
  plan.stage_begins.push_back(costs.num_layers());
  return plan;
}

int64_t ReservedPeak(at::Device device) {
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  return stats.reserved_bytes[0].peak;
}

int64_t AllocatedPeak(at::Device device) {
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  return stats.allocated_bytes[0].peak;
}

}  // namespace

std::vector<LayerWork> CountLayers(const GpuCountSettings& settings) {
  const at::Device device = Gpu(settings);
  const std::vector<LayerSpec> specs = LayerSpecs(settings.model);
  std::vector<LayerWork> works;
  std::set<std::string> known;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!known.insert(specs[i].kind).second) continue;
    works.push_back(CountLayer(settings, specs[i], static_cast<int>(i), device));
  }
  return works;
}

StepWork CountStep(const GpuCountSettings& settings) {
  const at::Device device = Gpu(settings);
  ClusterConfig section;
  section.preset = "h200";
  const Cluster cluster = MakeCluster(section);
  AdamWOptions adamw;
  if (settings.bf16_moments) adamw.moments = at::kBFloat16;
  const CostModel costs(
      settings.model, cluster,
      {.tensor = settings.tensor,
       .element_bytes = kElementBytes,
       .frozen = {},
       .style = {.program = &ThisProgram(settings.own_kernels),
                 .moment_bytes = static_cast<double>(c10::elementSize(adamw.moments))}});
  const LayerLoad load = settings.row.load(ImageSpecOf(settings.model));
  const std::vector<LayerLoad> loads(static_cast<size_t>(settings.micro_batches), load);
  const Plan plan = PlanOf(settings, costs, load);

  LoneRank world(plan.mesh, settings.rank);
  TimelineRecorder recorder(settings.rank);
  ParallelModel::Options options;
  options.part.dtype = kDtype;
  options.part.device = device;
  options.costs = [&](const std::vector<LayerLoad>& of) {
    return StageCosts(costs, plan, cluster, of);
  };
  ParallelModel model(settings.model, plan, options, world, recorder);
  const std::vector<Parameter*>& parameters = model.parameters().parameters();
  const std::vector<double> factors(parameters.size(), 1.0);
  ZeroOptimizer optimizer(model.parameters(), DecayGroups(parameters, factors, 0.05), adamw,
                          model.shards(), model.optimizer_groups());
  optimizer.TakeMasters();
  const MicroBatch batch = RandomMicroBatch(settings.model, settings.row);
  const auto passes = [&] {
    ModelPart::Pass pass;
    pass.loads = loads;
    pass.batch = [&batch](int) -> const MicroBatch& { return batch; };
    model.RunStep(std::move(pass));
    if (model.reports_loss()) model.part().loss();
  };
  const auto step = [&](StepWork& work) {
    {
      const DeviceWorkMeter meter;
      passes();
      work.passes = meter.Total();
    }
    {
      const DeviceWorkMeter meter;
      optimizer.GradientNorm();
      work.norm = meter.Total();
      work.norm_operations = meter.ByOperation();
    }
    const DeviceWorkMeter meter;
    optimizer.Step(/*lr=*/1e-5, /*clip=*/0.5);
    work.update = meter.Total();
    work.update_operations = meter.ByOperation();
  };
  StepWork work;
  step(work);
  step(work);
  work.allocated_bytes = AllocatedPeak(device);
  work.reserved_bytes = ReservedPeak(device);
  work.forecast = ForecastMemory(costs, plan, model.schedule(), loads,
                                 plan.mesh.Coordinates(settings.rank).pipeline);
  work.forecast.reserve = 0;
  return work;
}

}  // namespace equipoise::testing
