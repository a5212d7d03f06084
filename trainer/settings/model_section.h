#pragma once

#include "models/spec/model_config.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// Whether a model is given: model.hf, model.preset, or the parts model.vision and model.llm.
bool NamesModel(const ModelSection& model);

// The configuration of that model, with its adapters and what model.unfreeze names; no weights are
// read. Parts are joined, and the vocabulary grows by the tokens for pictures that it has no row
// for. Throws ConfigError when none or several are given, or one part alone, and as
// ReadModelConfig() and JoinParts() do.
ModelConfig ModelConfigOf(const ModelSection& model);
// The same of a model to be trained, with what the section `data` says of pictures (data.pixels)
// and videos. Throws as RequireTrained() too, and ConfigError for model.base_modules that has no
// effect.
ModelConfig ModelConfigOf(const RunConfig& config);
// Throws ConfigError for weights in GPTQ's form without adapters: nothing of the model is trained.
void RequireTrained(const ModelConfig& config);
// Sets that in a model's configuration. Throws ConfigError for limits that contradict each other,
// and for those that have no effect.
void UsePixels(const DataConfig& data, ModelConfig* model);

// Sets config->lora and config->quantize by the section. Throws ConfigError for names that match no
// linear layer, and settings that do not go together; DataError where model.adapter.init is not a
// folder of PEFT.
void SetAdapters(const ModelSection& model, ModelConfig* config);

}  // namespace equipoise
