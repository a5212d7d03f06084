// Projectors from a file: whose names they may have, and which of them are refused.
#include "models/weights/projector_weights.h"

#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <catch2/catch.hpp>

#include "configs/base/error.h"
#include "models/families/presets.h"
#include "models/weights/safetensors.h"
#include "tests/data/temporary_folder.h"

namespace equipoise {
namespace {

using Catch::Contains;
using Tensors = std::map<std::string, at::Tensor>;

ModelConfig Config(const char* preset) {
  ModelConfig config = PresetConfig(preset);
  config.vision.hidden_size = 8;
  config.vision.num_attention_heads = 1;
  config.text.hidden_size = 12;
  return config;
}

class File {
 public:
  explicit File(const Tensors& tensors) : path_(folder_ / "projector.safetensors") {
    std::map<std::string, LazyTensor> lazy;
    for (const auto& [name, tensor] : tensors) lazy.emplace(name, LazyTensor(tensor));
    WriteSafetensors(path_, lazy);
  }

  const std::string& path() const { return path_; }
  std::string Refusal(const ModelConfig& config) const {
    try {
      ProjectorFile("model.projector.weights", path_, config);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }

 private:
  TemporaryFolder folder_;
  std::string path_;
};

Tensors Llava(const std::string& prefix) {
  return {{prefix + "0.weight", at::randn({12, 8})},
          {prefix + "0.bias", at::randn({12})},
          {prefix + "2.weight", at::randn({12, 12})},
          {prefix + "2.bias", at::randn({12})}};
}

TEST_CASE("a projector is read under any of its names", "[models][cpu]") {
  const ModelConfig config = Config("llava1_5-7b");
  for (const char* prefix :
       {"model.mm_projector.", "mm_projector.", "base_model.model.model.mm_projector.",
        "base_model.model.mm_projector."}) {
    INFO(prefix);
    Tensors tensors = Llava(prefix);
    tensors["model.embed_tokens.weight"] = at::zeros({3, 12});  // is left alone
    const File file(tensors);
    const WeightFolder from = ProjectorFile("key", file.path(), config);
    Parameter weight, bias;
    weight.name = "multi_modal_projector.linear_2.weight";
    weight.shape = {12, 12};
    bias.name = "multi_modal_projector.linear_1.bias";
    bias.shape = {12};
    for (Parameter* parameter : {&weight, &bias}) parameter->master = at::zeros(parameter->shape);
    LoadWeights({&weight, &bias}, config, from);
    CHECK(weight.master.equal(tensors[std::string(prefix) + "2.weight"]));
    CHECK(bias.master.equal(tensors[std::string(prefix) + "0.bias"]));
  }
  const Tensors own = Llava("model.multi_modal_projector.linear_");
  Tensors renamed;
  for (const auto& [name, tensor] : own) {
    std::string ours = name;
    if (const size_t at = ours.find("_0."); at != ours.npos) ours.replace(at, 3, "_1.");
    renamed[ours] = tensor;
  }
  CHECK(File(renamed).Refusal(config).empty());
  const ModelConfig internvl = Config("internvl2-1b");
  const int64_t rows = 8 * 4;
  CHECK(File({{"mlp1.0.weight", at::zeros({rows})},
              {"mlp1.0.bias", at::zeros({rows})},
              {"mlp1.1.weight", at::zeros({12, rows})},
              {"mlp1.1.bias", at::zeros({12})},
              {"mlp1.3.weight", at::zeros({12, 12})},
              {"mlp1.3.bias", at::zeros({12})}})
            .Refusal(internvl)
            .empty());
}

TEST_CASE("another projector is refused with both shapes", "[models][cpu]") {
  const ModelConfig config = Config("llava1_5-7b");
  const char* ours = "the model's is linear_1.weight [12, 8], linear_2.weight [12, 12]; give";
  const std::string prefix = "model.mm_projector.";
  Tensors narrow = Llava(prefix), longer = Llava(prefix), bare = Llava(prefix);
  narrow[prefix + "0.weight"] = at::zeros({12, 6});
  longer[prefix + "4.weight"] = at::zeros({12, 12});
  bare.erase(prefix + "0.bias");
  bare.erase(prefix + "2.bias");
  struct Row {
    Tensors tensors;
    std::vector<const char*> says;
  };
  const std::vector<Row> table = {
      {{{prefix + "weight", at::zeros({12, 8})}, {prefix + "bias", at::zeros({12})}},
       {"its projector is weight [12, 8], ", ours}},
      {narrow, {"linear_1.weight [12, 6], linear_2.weight [12, 12], ", ours}},
      {longer, {"4.weight [12, 12], linear_1.weight", ours}},
      {bare, {"linear_2.weight [12, 12], without biases, ", ours}},
      {{{"model.norm.weight", at::zeros({12})}}, {"holds no projector"}},
  };
  for (const Row& row : table) {
    const std::string said = File(row.tensors).Refusal(config);
    CHECK_THAT(said, Contains("model.projector.weights: "));
    for (const char* words : row.says) CHECK_THAT(said, Contains(words));
    CHECK(said.find('\n') == std::string::npos);
  }
  CHECK_THAT(File(Llava(prefix)).Refusal(Config("internvl2-1b")), Contains("its projector is"));
  CHECK_THROWS_WITH(ProjectorFile("model.projector.weights", "/none.bin", config),
                    Contains("model.projector.weights: /none.bin: no such file"));
}

}  // namespace
}  // namespace equipoise
