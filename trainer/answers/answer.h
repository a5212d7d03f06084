#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "data/images/image_size.h"
#include "data/settings/data_config.h"
#include "data/text/chat_template.h"
#include "data/text/conversation.h"
#include "data/text/tokenizer.h"
#include "models/spec/model_config.h"
#include "models/stages/stage.h"
#include "trainer/answers/generator.h"

namespace equipoise {

// Generates the answer to a conversation with pictures. The objects pointed to must outlive it. Not
// thread-safe.
class Responder {
 public:
  // `stage` holds all layers of the model.
  struct Model {
    Stage* stage = nullptr;
    const ModelConfig* config = nullptr;
  };
  Responder(Model model, const Tokenizer* tokenizer, const ChatTemplate* chat_template,
            const DataConfig* data)
      : model_(model), tokenizer_(tokenizer), template_(chat_template), data_(data) {}

  // Returns the answer to `turns`, which end with a user turn. `pictures` are [height, width, 3]
  // uint8, one for each `<image>` (missing placeholders are added before the text). Throws
  // DataError when their numbers do not match.
  std::string Answer(std::vector<Turn> turns, const std::vector<at::Tensor>& pictures,
                     const GenerateOptions& options) const;
  // Limits on the pictures, from data.limits.
  ImageLimits image_limits() const {
    return {data_->limits.image_pixels, data_->limits.image_bytes};
  }

 private:
  Model model_;
  const Tokenizer* tokenizer_;
  const ChatTemplate* template_;
  const DataConfig* data_;
};

}  // namespace equipoise
