#pragma once

#include <cstdint>
#include <string>

#include "configs/yaml/fields.h"

namespace equipoise {

// How model.vision and model.llm are joined.
struct ProjectorSection {
  int64_t feature_layer = 0;
  double downsample_ratio = 0;
  bool bias = true;
  std::string weights;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit(
        "feature_layer", feature_layer,
        "output of the encoder that the projector gets: -1 the last layer's, -2 the one's before; "
        "0: -2 of CLIP and SigLIP, -1 of InternViT");
    visit("downsample_ratio", downsample_ratio,
          "of InternViT: 0.5 makes one token of 2 x 2 patches; 0: 0.5", Between(0, 1));
    visit("bias", bias, "whether the projector of CLIP and SigLIP has biases");
    visit("weights", weights,
          "file of its first weights (LLaVA's mm_projector.bin, or .safetensors); without it they "
          "are drawn, or those of an llm in LLaVA's own form");
  }
};

}  // namespace equipoise
