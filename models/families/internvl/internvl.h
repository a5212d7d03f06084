#pragma once

#include "models/families/family.h"

namespace equipoise {

// InternVL 1.5 to 3.5: InternViT (arXiv 2312.14238) on tiles of one size, pixel shuffle and an MLP
// in front of a language model. Folders are in the naming of Transformers (model_type internvl) or
// of OpenGVLab's code (internvl_chat).
const EncoderFamily& InternVl();

}  // namespace equipoise
