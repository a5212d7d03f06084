#include "trainer/checkpoint/first_folders.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "configs/base/error.h"
#include "models/families/model_parts.h"
#include "models/weights/projector_weights.h"

namespace equipoise {

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
  FolderPart vision{{section.vision, encoder.prefix}, {}};
  FolderPart llm{{section.llm, kLanguageModelPrefix, added}, {}};
  llm.folder.names = DecoderNames(decoder, model);
  std::vector<Parameter*> projector;
  for (Parameter* parameter : parameters) {
    const std::string& name = parameter->name;
    std::vector<Parameter*>& owner = name.starts_with(kVisionTower)           ? vision.parameters
                                     : name.starts_with(kLanguageModelPrefix) ? llm.parameters
                                                                              : projector;
    owner.push_back(parameter);
  }
  if (section.projector.weights.empty()) return {{vision, llm}, projector};
  const WeightFolder file =
      ProjectorFile("model.projector.weights", section.projector.weights, model);
  return {{vision, llm, FolderPart{file, projector, false}}, {}};
}

std::vector<std::string> FoldersRead(const ModelSection& section) {
  if (section.llm.empty()) return {section.hf};
  return {section.vision, section.llm};
}

std::string FirstWeightsText(const ModelSection& section, int64_t seed) {
  if (section.init == "random") return fmt::format("drawing random weights, seed {}", seed);
  const std::string read =
      fmt::format("reading weights from {}", fmt::join(FoldersRead(section), " and "));
  if (section.llm.empty()) return read;
  if (!section.projector.weights.empty())
    return read + ", the projector's from " + section.projector.weights;
  return fmt::format("{}, drawing the projector's, seed {}", read, seed);
}

}  // namespace equipoise
