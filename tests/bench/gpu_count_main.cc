// Counts what training gives a GPU to do, by layer kind and step, under the recording CUDA
// (tests/recording_cuda): launches, copies, waits of the host, bytes of the operations' inputs and
// outputs, and the caching allocator's peaks beside the memory forecast. Prints JSON.

#include <CLI/CLI.hpp>
#include <cstdio>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "models/families/presets.h"
#include "tests/bench/gpu_count.h"

namespace equipoise::testing {
namespace {

Json ToJson(const DeviceWork& work) {
  return {{"launches", work.launches}, {"copies", work.copies}, {"to_device", work.to_device},
          {"to_host", work.to_host},   {"waits", work.waits},   {"bytes", work.bytes}};
}

Json ToJson(const std::map<std::string, DeviceWork>& operations) {
  Json all = Json::object();
  for (const auto& [name, work] : operations)
    all[name] = {{"launches", work.launches}, {"bytes", work.bytes}};
  return all;
}

Json Layers(const GpuCountSettings& settings) {
  Json all = Json::array();
  for (const LayerWork& work : CountLayers(settings)) {
    all.push_back({{"kind", work.kind},
                   {"forward", ToJson(work.forward)},
                   {"backward", ToJson(work.backward)},
                   {"forward_operations", ToJson(work.forward_operations)},
                   {"backward_operations", ToJson(work.backward_operations)}});
  }
  return {{"layers", all}};
}

Json Step(const GpuCountSettings& settings) {
  const StepWork work = CountStep(settings);
  const MemoryForecast& forecast = work.forecast;
  return {{"passes", ToJson(work.passes)},
          {"norm", ToJson(work.norm)},
          {"update", ToJson(work.update)},
          {"norm_operations", ToJson(work.norm_operations)},
          {"update_operations", ToJson(work.update_operations)},
          {"allocated_bytes", work.allocated_bytes},
          {"reserved_bytes", work.reserved_bytes},
          {"forecast_bytes", forecast.total()},
          {"forecast",
           {{"parameters", forecast.parameters},
            {"gradients", forecast.gradients},
            {"optimizer", forecast.optimizer},
            {"activations", forecast.activations},
            {"temporary", forecast.temporary},
            {"communication", forecast.communication}}}};
}

int Run(int argc, char** argv) {
  CLI::App app("counts a GPU's work under the recording CUDA");
  std::string what, model = "internvl2-2b";
  GpuCountSettings settings;
  int64_t tokens = 8192, segments = 5, targets = 2000;
  settings.row.tiles = 20;
  app.add_option("what", what, "layers or step")->required();
  app.add_option("--model", model);
  app.add_option("--tokens", tokens);
  app.add_option("--segments", segments);
  app.add_option("--targets", targets);
  app.add_option("--tiles", settings.row.tiles);
  app.add_option("--micro-batches", settings.micro_batches);
  app.add_option("--pipeline", settings.pipeline);
  app.add_option("--tensor", settings.tensor);
  app.add_option("--data", settings.data);
  app.add_option("--rank", settings.rank);
  app.add_option("--schedule", settings.schedule);
  app.add_flag("--recompute", settings.recompute);
  app.add_flag("--bf16-moments", settings.bf16_moments);
  app.add_flag("!--aten", settings.own_kernels, "without the program's own kernels");
  CLI11_PARSE(app, argc, argv);
  settings.model = PresetConfig(model);
  settings.row.segments.assign(static_cast<size_t>(segments), tokens / segments);
  settings.row.segments.back() += tokens % segments;
  settings.row.masked = tokens - targets;
  try {
    const Json result = what == "layers" ? Layers(settings) : Step(settings);
    std::printf("%s\n", result.dump(1).c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_count: %s\n", error.what());
    return 1;
  }
  std::fflush(stdout);
  // Without LibTorch's destructors, which ask a GPU for the last time.
  std::_Exit(0);
}

}  // namespace
}  // namespace equipoise::testing

int main(int argc, char** argv) { return equipoise::testing::Run(argc, argv); }
