#include <ATen/ops/aminmax.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "configs/base/error.h"
#include "configs/yaml/overrides.h"
#include "configs/yaml/yaml_reader.h"
#include "models/families/families.h"
#include "models/weights/peft_folder.h"
#include "models/weights/safetensors.h"
#include "models/weights/weights.h"
#include "parallel/packed_weight.h"
#include "trainer/checkpoint/checkpoint_adapters.h"
#include "trainer/checkpoint/first_folders.h"
#include "trainer/checkpoint/loaded_model.h"
#include "trainer/checkpoint/merge_adapters.h"
#include "trainer/checkpoint/model_source.h"
#include "trainer/common/commands.h"
#include "trainer/common/durable_file.h"
#include "trainer/settings/model_section.h"
#include "trainer/settings/run_config.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string checkpoint;
  std::string out;
  std::string dtype = "fp32";
  std::string adapter;
  bool merge = false;
  std::vector<std::string> set;
};

at::ScalarType StoredDtype(const std::string& name) {
  if (name == "bf16") return at::kBFloat16;
  return name == "fp16" ? at::kHalf : at::kFloat;
}

// Writes the config.json of `from` with the dtype, of the model and of its components, under the
// key of Transformers 5 (`dtype`) and that of Transformers 4 (`torch_dtype`). No weight is
// quantised any more.
void WriteConfigJson(const std::string& from, const std::string& dtype, const std::string& to) {
  Json config = ReadJsonFile(from + "/config.json");
  const std::string name = dtype == "fp32" ? "float32" : dtype == "bf16" ? "bfloat16" : "float16";
  config.erase("quantization_config");
  config["dtype"] = name;
  if (config.contains("torch_dtype")) config["torch_dtype"] = name;
  for (const char* part : {"llm_config", "text_config", "vision_config"}) {
    if (!config.contains(part)) continue;
    for (const char* key : {"dtype", "torch_dtype"}) {
      if (config[part].contains(key)) config[part][key] = name;
    }
  }
  WriteFileDurably(to + "/config.json", config.dump(2) + "\n");
}

// Makes the folder. An interrupted export can be repeated, as config.json, of adapters
// adapter_config.json, is written last.
void MakeFolder(const std::string& folder) {
  for (const char* file : {"config.json", "adapter_config.json"}) {
    if (!fs::exists(fs::path(folder) / file)) continue;
    throw ConfigError(fmt::format("--out {}: holds a model already; give another folder", folder));
  }
  for (const char* file : {"checkpoints", "metrics.jsonl", "index.json"}) {
    if (!fs::exists(fs::path(folder) / file)) continue;
    throw ConfigError(fmt::format("--out {}: is a folder of a run; give another", folder));
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return;
  throw RunError(
      fmt::format("--out {}: cannot be made: {}; give another folder", folder, error.message()));
}

// The weights to export, by our names: adapters alone, or all others.
std::map<std::string, at::Tensor> Exported(const LoadedModel& model, const std::string& dtype,
                                           bool adapters) {
  std::map<std::string, at::Tensor> tensors;
  for (const Parameter* p : model.parameters->parameters()) {
    const bool is_taken =
        adapters ? p->role != ParameterRole::kBase : p->role != ParameterRole::kAdapter;
    if (!is_taken) continue;
    const at::Tensor values = p->packs ? p->packed->Unpacked(at::kFloat) : p->stored();
    tensors[p->name] = values.to(StoredDtype(dtype)).contiguous();
    if (p->numel() == 0) continue;
    const auto [least, most] = at::aminmax(tensors[p->name]);
    if (std::isfinite(least.item<double>()) && std::isfinite(most.item<double>())) continue;
    throw ConfigError(fmt::format(
        "--dtype {}: tensor {} has values beyond its range; give fp32 or bf16", dtype, p->name));
  }
  return tensors;
}

void Merge(LoadedModel& model, const std::string& dtype) {
  const MergeDifference difference = MergeAdapters(model, StoredDtype(dtype));
  std::fprintf(stderr,
               "merged: a weight changed by %.3g at most; logits of %lld tokens differ from the "
               "adapter's by %.3g at most (largest %.3g)\n",
               difference.weight, static_cast<long long>(difference.tokens), difference.logit,
               difference.largest_logit);
}

// Prints which checkpoint was taken, where there was a choice, and the new folder.
void PrintResult(const ModelSource& source, const std::string& out) {
  if (!source.checkpoint.empty())
    std::printf("from %s\n", fs::path(source.checkpoint).lexically_normal().c_str());
  std::printf("%s\n", out.c_str());
}

int Export(const Arguments& arguments) {
  const ModelSource source = FindModel(arguments.checkpoint);
  if (source.checkpoint.empty() && arguments.adapter.empty()) {
    throw DataError(arguments.checkpoint +
                    ": this is a Hugging Face folder already; give a run folder");
  }
  if (!arguments.adapter.empty()) RequireHuggingFaceBase(source, arguments.checkpoint);
  RunConfig run;
  const std::vector<Override> overrides = ParseOverrides(arguments.set);
  if (source.run_config.empty()) {
    ReadConfigText("--set", "{}", overrides, run);
  } else {
    ReadConfig(source.run_config, overrides, run);
  }
  if (!arguments.adapter.empty()) {
    run.model.adapter = {};
    run.model.adapter.init = arguments.adapter;
  }
  ModelConfig config = ReadModelConfig(source.folder);
  TakeAdaptersOf(source.checkpoint, config, &run.model);
  SetAdapters(run.model, &config);
  if (!config.lora.on() && arguments.merge)
    throw ConfigError(
        fmt::format("--merge: {} has no adapters; leave it out", arguments.checkpoint));
  MakeFolder(arguments.out);
  LoadOptions load;
  load.inference = true;
  LoadedModel model = BuildModel(config, load);
  if (source.checkpoint.empty()) {
    run.model.hf = source.folder;
    LoadFirstWeights(model, run);
  } else {
    LoadRun(model, run, source.checkpoint);
  }
  if (config.lora.on() && !arguments.merge) {
    const std::string& base = run.model.hf;
    if (!run.model.llm.empty()) {
      std::fprintf(stderr,
                   "the adapters lie over %s, no one folder that PEFT could load: with --merge the "
                   "whole model is written\n",
                   fmt::format("{}", fmt::join(FoldersRead(run.model), " and ")).c_str());
    }
    CopyAskingDescription(source.folder, arguments.out);
    WritePeft(arguments.out, config, base.empty() ? base : fs::absolute(base).string(),
              Exported(model, arguments.dtype, /*adapters=*/true));
    std::printf("%s\n", arguments.out.c_str());
    return static_cast<int>(ExitCode::kDone);
  }
  if (arguments.merge) Merge(model, arguments.dtype);
  const std::map<std::string, at::Tensor> tensors =
      NamedForFolder(Exported(model, arguments.dtype, /*adapters=*/false), config);
  WriteSafetensors(arguments.out + "/model.safetensors", {tensors.begin(), tensors.end()},
                   {{"format", "pt"}});
  CopyBesideConfig(source.folder, arguments.out);
  if (!arguments.adapter.empty()) CopyAskingDescription(arguments.adapter, arguments.out);
  WriteConfigJson(source.folder, arguments.dtype, arguments.out);
  PrintResult(source, arguments.out);
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void AddExportCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("export",
                         "Writes a checkpoint as a folder that Transformers loads, or OpenGVLab's "
                         "code where the model was its folder; adapters as a folder of PEFT");
  auto arguments = std::make_shared<Arguments>();
  command
      ->add_option("CHECKPOINT", arguments->checkpoint, "run folder (its latest) or step-* folder")
      ->required();
  command->add_option("--out", arguments->out, "new folder")->required();
  command->add_option("--dtype", arguments->dtype, "of the weights")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  command->add_flag("--merge", arguments->merge,
                    "adds adapters to their base and writes the whole model");
  command->add_option("--adapter", arguments->adapter,
                      "folder of PEFT; CHECKPOINT is then its base, a Hugging Face folder");
  command->add_option("--set", arguments->set, "a setting of the run, such as model.hf=FOLDER")
      ->allow_extra_args(false);
  command->footer(
      "Examples:\n  equipoise export runs/quickstart --out exported\n"
      "  equipoise export runs/lora --merge --out merged\n"
      "  equipoise export BASE --adapter ADAPTER --merge --out merged");
  command->callback([arguments, &mpi, &run] {
    run = [arguments, &mpi] {
      RequireOneProcess(mpi, "export");
      return Export(*arguments);
    };
  });
}

}  // namespace equipoise
