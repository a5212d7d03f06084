#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "configs/base/shown_text.h"
#include "configs/yaml/overrides.h"
#include "configs/yaml/yaml_reader.h"
#include "data/images/image.h"
#include "data/settings/chat_templates.h"
#include "data/text/folder_template.h"
#include "models/families/families.h"
#include "parallel/comm/single_communicator.h"
#include "trainer/answers/answer.h"
#include "trainer/checkpoint/loaded_model.h"
#include "trainer/checkpoint/model_source.h"
#include "trainer/common/commands.h"
#include "trainer/device/compute_device.h"
#include "trainer/device/compute_dtype.h"
#include "trainer/device/open_kernels.h"
#include "trainer/settings/run_config.h"
#include "trainer/settings/vocabulary.h"

namespace equipoise {
namespace {

struct Arguments {
  std::string model;
  std::string prompt;
  std::vector<std::string> images;
  std::vector<std::string> set;
  GenerateOptions options;
};

// Reads a file; messages of ImageError contain the path already.
std::string ReadPictureFile(const std::string& path, const ImageLimits& limits) {
  try {
    return ReadImageFile(path, limits);
  } catch (const ImageError& error) {
    throw DataError(error.what());
  }
}

at::Tensor ReadPicture(const std::string& path, const DataConfig& data) {
  const ImageLimits limits{data.limits.image_pixels, data.limits.image_bytes};
  const std::string file = ReadPictureFile(path, limits);
  try {
    return DecodeImage(file, limits);
  } catch (const ImageError& error) {
    const std::string what = error.what();
    throw DataError(what.starts_with(path) ? what : fmt::format("{}: {}", path, what));
  }
}

// The name of a folder's template: as its config.json says, as the text of its own Jinja template
// tells, or its family's.
std::string TemplateOf(const FolderSettings& settings, const std::string& folder,
                       const std::string& fallback) {
  if (settings.chat_template) return *settings.chat_template;
  if (const ChatTemplateForm* own = FolderTemplate(folder)) return std::string(own->name);
  return settings.default_template.value_or(fallback);
}

// Applies the settings that a Hugging Face folder specifies.
void ApplySettings(const FolderSettings& settings, const std::string& folder, DataConfig& data) {
  data.tiles.min = settings.min_tiles.value_or(data.tiles.min);
  data.tiles.max = settings.max_tiles.value_or(data.tiles.max);
  data.tiles.thumbnail = settings.thumbnail.value_or(data.tiles.thumbnail);
  data.system = settings.system.value_or(data.system);
  const std::string chat_template = TemplateOf(settings, folder, data.chat_template);
  if (FindChatTemplate(chat_template) != nullptr) {
    data.chat_template = chat_template;
  } else {
    spdlog::warn("the template '{}' of config.json is unknown, {} is used; --set data.template=...",
                 chat_template, data.chat_template);
  }
}

// Settings of the run in which the model was trained, or else of its folder; overridden by `--set`.
RunConfig ReadSettings(const ModelSource& source, const ModelConfig& model,
                       const std::vector<std::string>& set) {
  const std::vector<Override> overrides = ParseOverrides(set);
  RunConfig config;
  if (source.run_config.empty()) {
    ApplySettings(FolderSettingsOf(model, source.folder), source.folder, config.data);
    ReadConfigText("--set", "{}", overrides, config);
  } else {
    ReadConfig(source.run_config, overrides, config);
  }
  return config;
}

void CheckTemperature(double temperature) {
  if (std::isfinite(temperature) && temperature >= 0) return;
  throw ConfigError("--temperature: must be 0 or a positive number, such as 0.7");
}

void CheckPrompt(const Arguments& arguments) {
  std::vector<Turn> turns = {{Role::kUser, arguments.prompt}};
  const std::string fault = PlaceImages(turns, arguments.images.size());
  if (!fault.empty()) throw ConfigError("--prompt: " + fault);
}

int Generate(const Arguments& arguments, const MpiEnvironment& mpi) {
  CheckTemperature(arguments.options.temperature);
  CheckPrompt(arguments);
  const ModelSource source = FindModel(arguments.model);
  ModelConfig model_config = ReadModelConfig(source.folder);
  const RunConfig config = ReadSettings(source, model_config, arguments.set);

  const Tokenizer tokenizer = Tokenizer::Read(source.folder);
  const ChatTemplate chat_template(config.data.chat_template, config.data.system, &tokenizer);
  if (model_config.image_token_id < 0) model_config.image_token_id = chat_template.image_token();
  CheckVocabulary(source.folder, model_config, tokenizer, chat_template);
  LoadOptions load;
  load.device = OpenComputeDevice(config.train.device, mpi);
  SingleCommunicator alone;
  OpenKernels(config.train.kernels, load.device, alone);
  load.dtype = DtypeOf(PrecisionOn(load.device, config.train.precision));
  load.inference = true;
  LoadedModel model = BuildModel(model_config, load);
  if (source.checkpoint.empty()) {
    LoadHuggingFace(model, source.folder);
  } else {
    LoadCheckpointWeights(model, source.checkpoint);
  }

  std::vector<at::Tensor> pictures;
  pictures.reserve(arguments.images.size());
  for (const std::string& path : arguments.images)
    pictures.push_back(ReadPicture(path, config.data));
  const Responder responder({model.stage.get(), &model.config}, &tokenizer, &chat_template,
                            &config.data);
  const std::string answer =
      responder.Answer({{Role::kUser, arguments.prompt}}, pictures, arguments.options);
  // The answer may contain any byte; control characters are removed for a terminal only.
  std::cout << (isatty(STDOUT_FILENO) == 1 ? TerminalText(answer) : answer) << std::endl;
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void AddGenerateCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand("generate", "Answers a question about pictures");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("MODEL", arguments->model, "Hugging Face folder, run folder or step-* folder")
      ->required();
  command->add_option("--prompt", arguments->prompt, "the question")->required();
  command->add_option("--image", arguments->images, "a picture; may be given several times")
      ->allow_extra_args(false);
  command
      ->add_option("--max-new-tokens", arguments->options.max_new_tokens,
                   "longest answer, in tokens")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command
      ->add_option("--temperature", arguments->options.temperature,
                   "0 = the most likely token each time")
      ->capture_default_str();
  command->add_option("--seed", arguments->options.seed, "of the sampling")->capture_default_str();
  command->add_option("--set", arguments->set, "a setting, such as data.template=internvl2_5")
      ->allow_extra_args(false);
  command->footer(
      "Example:\n  equipoise generate runs/quickstart --prompt 'What is this?' --image cat.png");
  command->callback([arguments, &mpi, &run] {
    run = [arguments, &mpi] {
      RequireOneProcess(mpi, "generate");
      return Generate(*arguments, mpi);
    };
  });
}

}  // namespace equipoise
