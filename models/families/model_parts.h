#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "models/families/llava/original_llava.h"
#include "models/spec/model_config.h"
#include "models/spec/weight_names.h"

namespace equipoise {

// A model from parts: the image encoder of one Hugging Face folder, the language model of another,
// and a new projector between them. The encoder decides the form: with CLIP's or SigLIP's it is
// LLaVA's (arXiv 2310.03744), with InternViT it is InternVL's. LibTorch-free.

// What the names of the weights in a language model's folder lack of those in the joined model.
constexpr char kLanguageModelPrefix[] = "language_model.";
// What the names of the encoder's weights in the joined model begin with.
constexpr char kVisionTower[] = "vision_tower.";

struct EncoderPart {
  std::string folder;
  Json config;             // the encoder's own keys, as a `vision_config`
  bool internvit = false;  // else CLIP or SigLIP
  // What the names of its weights lack of names that the joined model knows.
  std::string prefix;
};

// Reads FOLDER/config.json: of CLIPModel, SiglipModel, or their vision models, or of InternViT in
// OpenGVLab's form or Transformers'. Throws DataError for anything else.
EncoderPart ReadEncoderPart(const std::string& folder);

struct DecoderPart {
  std::string folder;
  // As the joined model has it. Transformers has no class for InternLM2, whose layers are LLaMA's:
  // there it is one, as Transformers' own conversion of InternVL makes it.
  ModelConfig config;
  std::string model_type;  // of the folder, whose names its weights have
  // Of a folder in LLaVA's own form, which has the projector too.
  std::optional<OriginalLlava> llava;
};

// Reads FOLDER/config.json of a language model, or of a LLaVA-1.5 in its own form. Throws DataError
// for another model that has an encoder.
DecoderPart ReadDecoderPart(const std::string& folder);

// The encoder that a folder of a LLaVA-1.5 in its own form names (mm_vision_tower); nothing of any
// other folder, or of one that cannot be read.
std::optional<std::string> EncoderNamedIn(const std::string& folder);

// The names of the weights in the folder of a decoder, after kLanguageModelPrefix, for the joined
// model; of LLaVA's own form those of the projector and the encoder too.
WeightNames DecoderNames(const DecoderPart& decoder, const ModelConfig& joined);

// The special tokens that the joined model's tokenizer needs for pictures, in the order in which
// LLaVA and InternVL add those that it lacks.
std::vector<std::string> ImageTokensOf(const EncoderPart& encoder);
// The one among them that stands for a picture's rows.
std::string PlaceholderOf(const EncoderPart& encoder);

struct JoinOptions {
  int64_t vocab_size = 0;      // rows of the embedding, at least the language model's
  int64_t image_token_id = 0;  // id of PlaceholderOf()
  // 0: as LLaVA-1.5 and InternVL have it: the output of the last encoder block but one (-2) or of
  // the last (-1), and one token for 2 x 2 patches of InternViT; of LLaVA's own form as it says.
  int64_t feature_layer = 0;
  double downsample_ratio = 0;
  bool projector_bias = true;
};

// The configuration of the joined model, in Transformers' form. Throws DataError for parts that are
// not supported or do not fit, ConfigError for options that its form does not have.
ModelConfig JoinParts(const EncoderPart& encoder, const DecoderPart& decoder,
                      const JoinOptions& options);

}  // namespace equipoise
