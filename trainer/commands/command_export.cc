#include <ATen/ops/aminmax.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <system_error>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/weights/safetensors.h"
#include "models/weights/weights.h"
#include "trainer/checkpoint/loaded_model.h"
#include "trainer/checkpoint/model_source.h"
#include "trainer/common/commands.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string checkpoint;
  std::string out;
  std::string dtype = "fp32";
};

at::ScalarType StoredDtype(const std::string& name) {
  if (name == "bf16") return at::kBFloat16;
  return name == "fp16" ? at::kHalf : at::kFloat;
}

// Sets the dtype in config.json, of the model and of its components, under the key of Transformers
// 5 (`dtype`) and that of Transformers 4 (`torch_dtype`).
void WriteConfigJson(const std::string& folder, const std::string& dtype) {
  const std::string path = folder + "/config.json";
  Json config = ReadJsonFile(path);
  const std::string name = dtype == "fp32" ? "float32" : dtype == "bf16" ? "bfloat16" : "float16";
  config["dtype"] = name;
  if (config.contains("torch_dtype")) config["torch_dtype"] = name;
  for (const char* part : {"llm_config", "text_config", "vision_config"}) {
    if (!config.contains(part)) continue;
    for (const char* key : {"dtype", "torch_dtype"}) {
      if (config[part].contains(key)) config[part][key] = name;
    }
  }
  std::ofstream out(path);
  out << config.dump(2) << "\n";
  if (!out.flush()) throw RunError(path + ": cannot write; free or change the folder");
}

int Export(const Arguments& arguments) {
  const ModelSource source = FindModel(arguments.checkpoint);
  if (source.checkpoint.empty()) {
    throw DataError(arguments.checkpoint +
                    ": this is a Hugging Face folder already; give a run folder");
  }
  if (fs::exists(fs::path(arguments.out) / "config.json")) {
    throw ConfigError(
        fmt::format("--out {}: holds a model already; give another folder", arguments.out));
  }
  LoadOptions load;
  load.inference = true;
  LoadedModel model = BuildModel(ReadModelConfig(source.folder), load);
  LoadCheckpointWeights(model, source.checkpoint);

  // Weights first: a folder without config.json is not a model, so an interrupted export can be
  // repeated.
  std::error_code error;
  fs::create_directories(arguments.out, error);
  if (error) {
    throw RunError(fmt::format("--out {}: cannot be made: {}; give another folder", arguments.out,
                               error.message()));
  }
  std::map<std::string, at::Tensor> tensors;
  for (const Parameter* p : model.parameters->parameters()) {
    tensors[p->name] = p->stored().to(StoredDtype(arguments.dtype)).contiguous();
    if (p->numel() == 0) continue;
    const auto [least, most] = at::aminmax(tensors[p->name]);
    if (std::isfinite(least.item<double>()) && std::isfinite(most.item<double>())) continue;
    throw ConfigError(
        fmt::format("--dtype {}: tensor {} has values beyond its range; give fp32 or bf16",
                    arguments.dtype, p->name));
  }
  tensors = NamedForFolder(tensors, model.config);
  WriteSafetensors(arguments.out + "/model.safetensors", {tensors.begin(), tensors.end()},
                   {{"format", "pt"}});
  CopyModelDescription(source.folder, arguments.out);
  WriteConfigJson(arguments.out, arguments.dtype);
  std::printf("%s\n", arguments.out.c_str());
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void AddExportCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("export",
                         "Writes a checkpoint as a folder that Transformers loads, or OpenGVLab's "
                         "code where the model was its folder");
  auto arguments = std::make_shared<Arguments>();
  command
      ->add_option("CHECKPOINT", arguments->checkpoint, "run folder (its latest) or step-* folder")
      ->required();
  command->add_option("--out", arguments->out, "new folder")->required();
  command->add_option("--dtype", arguments->dtype, "of the weights")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  command->footer("Example:\n  equipoise export runs/quickstart --out exported");
  command->callback([arguments, &mpi, &run] {
    run = [arguments, &mpi] {
      RequireOneProcess(mpi, "export");
      return Export(*arguments);
    };
  });
}

}  // namespace equipoise
