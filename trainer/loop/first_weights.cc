#include "trainer/loop/first_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "configs/base/error.h"
#include "models/stages/model.h"
#include "parallel/comm/gather_text.h"
#include "trainer/checkpoint/base_weights.h"
#include "trainer/checkpoint/first_folders.h"
#include "trainer/common/agreement.h"
#include "trainer/settings/model_section.h"

namespace equipoise {
namespace {

// `mine`: a line for each matrix of this rank whose elements are all 0.
void WarnOfZeros(Communicator& world, const std::string& mine, const std::string& folder) {
  std::string all;
  for (const std::string& text : GatherText(world, mine)) all += text;
  if (all.empty()) return;
  spdlog::warn("{}: {} weight matrices hold nothing but zeros, such as {}; is the file whole?",
               folder, std::count(all.begin(), all.end(), '\n'), all.substr(0, all.find('\n')));
}

// Whether a folder holds weights; the pointers that git leaves in place of large files are none.
bool HasWeights(const std::string& folder) {
  constexpr std::string_view kPointer = "version https://git-lfs";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::filesystem::path path = entry.path();
    const bool torch =
        path.extension() == ".bin" && path.filename().string().starts_with("pytorch_model");
    if (!torch && path.extension() != ".safetensors") continue;
    std::string begin(kPointer.size(), ' ');
    std::ifstream(path, std::ios::binary).read(begin.data(), std::ssize(begin));
    if (begin != kPointer) return true;
  }
  return false;
}

// Throws DataError for missing weights and other shapes; returns a line for each folder that has
// weights that are not used.
std::vector<std::string> CheckFolders(const ModelConfig& model, const ModelSection& section) {
  std::vector<Parameter*> parameters;
  const auto layers = BuildLayers(model);
  for (const auto& layer : layers) {
    for (Parameter* parameter : layer->parameters()) parameters.push_back(parameter);
  }
  CheckFirstFolders(parameters, model, section);
  return UnusedInFolders(model, section);
}

}  // namespace

void CheckPlannedWeights(const RunConfig& config) {
  const ModelSection& section = config.model;
  if (section.init == "random" || (section.hf.empty() && section.llm.empty())) return;
  const auto lacks = [](const std::string& folder) {
    if (!std::filesystem::is_directory(folder) || HasWeights(folder)) return false;
    spdlog::warn("{}: holds no weights, which `train` will read; planned by its config.json",
                 folder);
    return true;
  };
  // The first of them may tell which others are read.
  if (lacks(section.llm.empty() ? section.hf : section.llm)) return;
  const std::vector<std::string> folders = FoldersRead(section);
  if (std::any_of(folders.begin(), folders.end(), lacks)) return;
  for (const std::string& line : CheckFolders(ModelConfigOf(config), section))
    spdlog::warn("{}", line);
}

void CheckFirstWeights(const RunContext& context, const ModelConfig& model) {
  const ModelSection& section = context.config.model;
  if (section.init == "random") return;
  if (section.hf.empty() && section.llm.empty()) {
    throw ConfigError(
        "model.init: pretrained weights come from model.hf; name it, or set init: random");
  }
  AgreeOrThrowDataError(context.world(), [&] {
    const std::vector<std::string> unused = CheckFolders(model, section);
    if (context.rank() != 0) return;
    for (const std::string& line : unused) spdlog::warn("{}", line);
  });
}

void TakeFirstWeights(RunContext& context, const ModelConfig& model, FlatParameters& parameters) {
  const RunConfig& config = context.config;
  const std::string what = FirstWeightsText(config.model, config.train.seed);
  spdlog::info("{}", what);
  const auto taking = context.activity.During(what);
  std::string zeros;
  AgreeOrThrowDataError(context.world(), [&] {
    parameters.SetWeights([&](const std::vector<Parameter*>& some) {
      for (const std::string& name :
           SetFirstWeights(some, model, config.model, static_cast<uint64_t>(config.train.seed))) {
        zeros += name + "\n";
      }
    });
  });
  WarnOfZeros(context.world(), zeros,
              fmt::format("{}", fmt::join(FoldersRead(config.model), " and ")));
}

}  // namespace equipoise
