#pragma once

#include "models/families/family.h"

namespace equipoise {

// LLaVA-1.5 (arXiv 2310.03744) and models of its form: the patches of a CLIP or SigLIP vision
// transformer, as they leave one of its last layers, and an MLP of two layers in front of a
// language model. A picture is one square. Folders are those of Transformers (model_type llava).
const EncoderFamily& Llava();

// LLaVA-NeXT (LLaVA-1.6): the same, with a picture of any resolution as several tiles
// (models/spec/any_resolution.h) and a trained vector behind each row of patches. model_type
// llava_next.
const EncoderFamily& LlavaNext();

// LLaVA-OneVision (arXiv 2408.03326): LLaVA-NeXT with SigLIP, up to 36 resolutions whose patches
// are brought down where they are many, one square for each of several pictures, and videos.
// model_type llava_onevision.
const EncoderFamily& LlavaOnevision();

}  // namespace equipoise
