#include "trainer/answers/answer.h"

#include <ATen/ops/cat.h>

#include "configs/base/error.h"
#include "data/images/image_tiling.h"

namespace equipoise {

std::string Responder::Answer(std::vector<Turn> turns, const std::vector<at::Tensor>& pictures,
                              const GenerateOptions& options) const {
  const std::string fault = PlaceImages(turns, pictures.size());
  if (!fault.empty()) throw DataError("prompt: " + fault);
  if (!pictures.empty() && !model_.config->has_vision) {
    throw DataError("prompt: this model has no image encoder; leave the pictures out");
  }
  const auto count = static_cast<int64_t>(pictures.size());
  std::vector<int64_t> tiles;
  std::vector<at::Tensor> pixels;
  for (const at::Tensor& picture : pictures) {
    pixels.push_back(MakeTiles(picture, data_->tiles, count, model_.config->vision.image_size));
    tiles.push_back(pixels.back().size(0));
  }
  const EncodedConversation prompt = template_->Encode(
      turns, tiles, model_.config->has_vision ? model_.config->tokens_per_tile() : 0,
      /*with_answer_prompt=*/true);
  Generator generator(model_.stage, model_.config);
  std::vector<int32_t> stop = {template_->end_of_turn()};
  const TextConfig& text = model_.config->text;
  if (text.eos_token_id >= 0 && text.eos_token_id < text.vocab_size) {
    stop.push_back(static_cast<int32_t>(text.eos_token_id));
  }
  const std::vector<int32_t> ids = generator.Continue(
      prompt.ids, pixels.empty() ? at::Tensor() : at::cat(pixels), stop, options);
  return tokenizer_->Decode(ids, /*skip_special=*/true);
}

}  // namespace equipoise
