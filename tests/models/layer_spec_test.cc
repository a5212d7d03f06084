#include "models/spec/layer_spec.h"

#include <catch2/catch.hpp>
#include <map>

#include "models/families/families.h"
#include "models/families/presets.h"
#include "tests/models/load_of.h"

namespace equipoise {
namespace {

// In fp32, of a layer that computes nothing again.
double KeptBytes(const LayerSpec& layer, const LayerLoad& load) {
  double elements = 0;
  for (const HalfCost* half : {&layer.attention, &layer.mlp}) {
    elements += half->input.At(load) + half->saved.At(load) + half->saved_weights.At(load) +
                half->saved_fp32.At(load);
  }
  return 4 * elements;
}

TEST_CASE("presets have the published numbers of parameters", "[models][cpu]") {
  // Billions, as the model cards state them: vision and language parts with the projector.
  const std::map<std::string, double> published = {
      {"internvl2-1b", 0.938},       {"internvl2-2b", 2.21},          {"internvl2_5-4b", 3.71},
      {"internvl2-8b", 8.08},        {"internvl2-26b", 25.5},         {"internvl3-1b", 0.938},
      {"internvl3-2b", 2.09},        {"internvl3-8b", 7.94},          {"internvl3-14b", 15.1},
      {"internvl3-38b", 38.4},       {"internvl2-40b", 40.1},         {"internvl3-78b", 78.4},
      {"quickstart", 0.0105},        {"internvl3_5-1b", 1.06},        {"internvl3_5-2b", 2.35},
      {"internvl3_5-4b", 4.73},      {"internvl3_5-8b", 8.53},        {"internvl3_5-14b", 15.1},
      {"internvl3_5-38b", 38.4},     {"llava1_5-7b", 7.06},           {"llava1_5-13b", 13.4},
      {"qwen2_vl-2b", 2.21},         {"qwen2_vl-7b", 8.29},           {"qwen2_vl-72b", 73.4},
      {"qwen2_5_vl-3b", 3.75},       {"qwen2_5_vl-7b", 8.29},         {"qwen2_5_vl-32b", 33.5},
      {"qwen3_vl-2b", 2.13},         {"qwen3_vl-4b", 4.44},           {"qwen3_vl-8b", 8.77},
      {"qwen3_vl-32b", 33.4},        {"qwen2_5_vl-72b", 73.4},        {"llava1_6-7b", 7.06},
      {"llava1_6-mistral-7b", 7.57}, {"llava_onevision-0.5b", 0.894}, {"llava_onevision-7b", 8.03},
      {"llava_onevision-72b", 73.2}, {"internvl2-4b", 4.15},
  };
  for (const std::string& name : PresetNames()) {
    int64_t count = 0;
    for (const LayerSpec& spec : LayerSpecs(PresetConfig(name))) count += spec.parameter_count();
    INFO(name << " " << count);
    REQUIRE(published.count(name) == 1);
    CHECK(static_cast<double>(count) / 1e9 == Approx(published.at(name)).epsilon(0.02));
  }
}

TEST_CASE("a layer's costs are those counted by hand", "[models][cpu]") {
  ModelConfig config = PresetConfig("quickstart");
  const std::vector<LayerSpec> specs = LayerSpecs(config);
  const LayerLoad load = LoadOf(config, /*tiles=*/3, /*tokens=*/10);
  CHECK(load.token_pairs == 55);
  CHECK(specs.size() == 1 + 6 + 1 + 1 + 6 + 1);

  const LayerSpec& patches = specs[0];
  CHECK(patches.ForwardFlops(load) == 2.0 * 3 * 64 * 588 * 256);
  CHECK(patches.BoundaryBytes(load, 2) == 2 * 3 * 65 * 256);
  const LayerSpec& vision = specs[1];
  CHECK(vision.ForwardFlops(load) ==
        3 * (2.0 * 65 * (4 * 256 * 256 + 2 * 256 * 1024) + 2 * 2.0 * 65 * 65 * 256));
  CHECK(KeptBytes(vision, load) == 4 * 3 * 65 * (10 * 256 + 2 * 1024 + 8));
  // Of a tile, as they were counted before patches were the unit.
  CHECK(patches.mlp.passes[0].elements.At(load) == 3 * 64.0 * 588);
  CHECK(patches.mlp.passes[1].elements.At(load) == 3 * 64.0 * 256);
  CHECK(patches.mlp.saved_weights.At(load) == 3 * 64.0 * 588);
  CHECK(patches.mlp.workspace.At(load) == 3 * (3 * 64.0 + 2) * 256);
  CHECK(vision.attention.AttentionFlops(load) == 3 * 4.0 * 65 * 65 * 256);
  CHECK(vision.mlp.workspace.At(load) == 3 * 65.0 * (2 * 256 + 1024));
  CHECK(vision.input.Shape(load) == std::vector<int64_t>{3, 65, 256});
  const LayerSpec& projector = specs[7];
  CHECK(projector.ForwardFlops(load) == 2.0 * 3 * 16 * (1024 * 256 + 256 * 256));
  CHECK(projector.mlp.input.At(load) == 3 * 65.0 * 256);
  CHECK(projector.mlp.workspace.At(load) == 3 * 16.0 * (1024 + 256));
  CHECK(projector.input.Shape(load) == std::vector<int64_t>{3, 65, 256});
  CHECK(projector.output.Shape(load) == std::vector<int64_t>{3 * 16, 256});
  CHECK(specs[8].mlp.input.At(load) == 3 * 16.0 * 256);
  CHECK(specs[8].input.Shape(load) == projector.output.Shape(load));
  CHECK(projector.kind == "projector");
  CHECK(projector.BoundaryBytes(load, 4) == 4 * 3 * 16 * 256);
  const LayerSpec& decoder = specs[9];
  CHECK(decoder.kind == kDecoderBlock);
  const double matrices = 256 * 256 + 2 * 256 * 128 + 256 * 256 + 3 * 256 * 768;
  CHECK(decoder.ForwardFlops(load) == 2 * 10 * matrices + 4.0 * 256 * 55);
  CHECK(decoder.BackwardFlops(load) == 2 * decoder.ForwardFlops(load) + 2.0 * 256 * 55);
  const LayerSpec& head = specs.back();
  CHECK(head.ForwardFlops(load) == 2.0 * 10 * 2048 * 256);
  CHECK(KeptBytes(head, load) == 4 * 10 * (3 * 256 + 1));
  // The head alone works on targets only; it keeps its whole input.
  LayerLoad half = load;
  half.targets = 5;
  CHECK(head.ForwardFlops(half) == 2.0 * 5 * 2048 * 256);
  CHECK(head.BackwardFlops(half) == head.BackwardFlops(load) / 2);
  CHECK(KeptBytes(head, half) == 4 * (10 * 256 + 5 * (2 * 256 + 1)));
  CHECK(head.BoundaryBytes(half, 4) == head.BoundaryBytes(load, 4));
  CHECK(decoder.ForwardFlops(half) == decoder.ForwardFlops(load));
  // Without tiles the vision layers cost nothing, without tokens the others.
  CHECK(vision.ForwardFlops(LoadOf(config, 0, 10)) == 0);
  CHECK(decoder.ForwardFlops(LoadOf(config, 3, 0)) == 0);
}

}  // namespace
}  // namespace equipoise
