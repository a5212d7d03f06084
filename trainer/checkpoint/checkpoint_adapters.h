#pragma once

#include <string>

#include "models/spec/model_config.h"
#include "trainer/checkpoint/checkpoint_index.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// Names of model.adapter may have meant other layers to the program that wrote a checkpoint: before
// they were matched as PEFT does, q_proj meant a part of an encoder's attn.qkv too, and a rank
// without targets meant nothing. Where they do, names in `section` the layers whose adapters and
// weights the checkpoint has, by our whole names, which mean the same to every version; without any
// it takes the section's keys away. Returns whether it has changed the section. `plain`: the model
// without adapters.
bool TakeAdaptersOf(const CheckpointIndex& index, const ModelConfig& plain, ModelSection* section);

// The same for the checkpoint in a folder; leaves the section as it is where that is "".
void TakeAdaptersOf(const std::string& checkpoint_dir, const ModelConfig& plain,
                    ModelSection* section);

}  // namespace equipoise
