#include "trainer/checkpoint/first_folders.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "configs/base/error.h"
#include "models/families/model_parts.h"
#include "models/weights/projector_weights.h"
#include "models/weights/safetensors.h"

namespace equipoise {

namespace {

// Whether a folder in LLaVA's own form has the encoder's weights too.
bool HasTower(const std::string& folder) {
  const std::vector<std::string> names = SafetensorsFolder(folder).names();
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.starts_with(kOriginalTower); });
}

}  // namespace

FirstFolders FindFirstFolders(const std::vector<Parameter*>& parameters, const ModelConfig& model,
                              const ModelSection& section) {
  if (section.llm.empty()) {
    if (!section.hf.empty()) return {{FolderPart{section.hf, parameters}}, {}};
    throw ConfigError(
        "model.init: pretrained weights come from model.hf; name it, or set init: random");
  }
  const EncoderPart encoder = ReadEncoderPart(section.vision);
  const DecoderPart decoder = ReadDecoderPart(section.llm);
  const int64_t added = model.text.vocab_size - decoder.config.text.vocab_size;
  const std::string& file = section.projector.weights;
  FolderPart vision{{section.vision, encoder.prefix}, {}}, projector{{file}, {}, false};
  FolderPart llm{{section.llm, kLanguageModelPrefix, added}, {}};
  llm.folder.names = DecoderNames(decoder, model);
  const bool has_tower = decoder.llava && HasTower(section.llm);
  if (!file.empty()) {
    projector.folder = ProjectorFile("model.projector.weights", file, model);
  } else if (decoder.llava) {
    RequireProjector("model.llm", llm.folder, model);
  }
  FirstFolders folders;
  for (Parameter* parameter : parameters) {
    const std::string& name = parameter->name;
    const bool of_vision = name.starts_with(kVisionTower);
    if (name.starts_with(kLanguageModelPrefix) || (of_vision && has_tower)) {
      llm.parameters.push_back(parameter);
    } else if (of_vision) {
      vision.parameters.push_back(parameter);
    } else {
      (!file.empty()   ? projector.parameters
       : decoder.llava ? llm.parameters
                       : folders.drawn)
          .push_back(parameter);
    }
  }
  folders.parts = {llm};
  if (!has_tower) folders.parts.push_back(vision);
  if (!file.empty()) folders.parts.push_back(projector);
  return folders;
}

std::vector<std::string> FoldersRead(const ModelSection& section) {
  if (section.llm.empty()) return {section.hf};
  if (ReadDecoderPart(section.llm).llava && HasTower(section.llm)) return {section.llm};
  return {section.vision, section.llm};
}

std::string FirstWeightsText(const ModelSection& section, int64_t seed) {
  if (section.init == "random") return fmt::format("drawing random weights, seed {}", seed);
  const std::string read =
      fmt::format("reading weights from {}", fmt::join(FoldersRead(section), " and "));
  if (section.llm.empty()) return read;
  if (!section.projector.weights.empty())
    return read + ", the projector's from " + section.projector.weights;
  const auto& llava = ReadDecoderPart(section.llm).llava;
  if (!llava) return fmt::format("{}, drawing the projector's, seed {}", read, seed);
  return fmt::format("{}, which has the {}projector too in LLaVA's original form (layer {}{})",
                     read, FoldersRead(section).size() == 1 ? "encoder and " : "",
                     llava->feature_layer, llava->pads ? ", pictures are padded" : "");
}

}  // namespace equipoise
