#include "trainer/checkpoint/checkpoint_adapters.h"

#include <set>
#include <vector>

#include "configs/base/error.h"
#include "configs/yaml/yaml_writer.h"
#include "models/families/adapters.h"
#include "models/families/families.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/settings/model_section.h"

namespace equipoise {
namespace {

using Names = std::set<std::string>;

// Regular expressions of the layers that have adapters, and of the modules trained in full.
struct Layers {
  Names targets, train;

  bool operator==(const Layers&) const = default;
};

Layers LayersOf(const CheckpointIndex& index, const ModelConfig& plain) {
  Layers layers;
  for (const LayerSpec& spec : LayerSpecs(plain)) {
    for (const LinearSpec& linear : spec.linear_layers) {
      const std::string name = spec.name + "." + linear.suffix;
      if (index.tensors.count(name + ".lora_A.weight") > 0)
        layers.targets.insert(ExactPattern(name));
    }
    for (const TensorSpec& tensor : spec.parameters) {
      if (index.tensors.count(tensor.name) > 0)
        layers.train.insert(ExactPattern(tensor.name.substr(0, tensor.name.rfind('.'))));
    }
  }
  if (layers.targets.empty()) layers.train.clear();  // all of the model is in the checkpoint
  return layers;
}

// Those that a section means now; nothing where it is refused.
Layers LayersOf(const ModelSection& section, ModelConfig config) {
  try {
    SetAdapters(section, &config);
  } catch (const ConfigError&) {
    return {};
  }
  return {{config.lora.targets.begin(), config.lora.targets.end()},
          {config.lora.train.begin(), config.lora.train.end()}};
}

}  // namespace

bool TakeAdaptersOf(const CheckpointIndex& index, const ModelConfig& plain, ModelSection* section) {
  AdapterSection& adapter = section->adapter;
  // A folder of PEFT says its layers by their whole names.
  if (EqualConfig(adapter, AdapterSection()) || !adapter.init.empty()) return false;
  const Layers layers = LayersOf(index, plain);
  if (layers.targets.empty()) {
    adapter = {};
    return true;
  }
  if (layers == LayersOf(*section, plain)) return false;
  adapter.targets = {layers.targets.begin(), layers.targets.end()};
  adapter.train = {layers.train.begin(), layers.train.end()};
  return true;
}

void TakeAdaptersOf(const std::string& checkpoint_dir, const ModelConfig& plain,
                    ModelSection* section) {
  if (checkpoint_dir.empty()) return;
  TakeAdaptersOf(ReadCheckpointIndex(checkpoint_dir, /*verify=*/false), plain, section);
}

}  // namespace equipoise
