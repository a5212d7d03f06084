#include "trainer/answers/answer.h"

#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include "configs/base/error.h"
#include "data/images/image_processor.h"
#include "models/families/families.h"

namespace equipoise {

std::string Responder::Answer(std::vector<Turn> turns, const std::vector<at::Tensor>& pictures,
                              const GenerateOptions& options) const {
  const std::string fault = PlaceImages(turns, pictures.size());
  if (!fault.empty()) throw DataError(fmt::format("prompt: {}", fault));
  if (!pictures.empty() && !model_.config->has_vision) {
    throw DataError("prompt: this model has no image encoder; leave the pictures out");
  }
  const ImageProcessor processor(ImageSpecOf(*model_.config), data_->tiles);
  const int64_t count = std::ssize(pictures);
  std::vector<int64_t> image_tokens;
  std::vector<at::Tensor> pixels;
  for (const at::Tensor& picture : pictures) {
    const ImageSize size{picture.size(1), picture.size(0)};
    image_tokens.push_back(processor.Measure(size, count).image_tokens);
    pixels.push_back(processor.Make(picture, count));
  }
  const EncodedConversation prompt =
      template_->Encode(turns, image_tokens, /*with_answer_prompt=*/true);
  Generator generator(model_.stage, model_.config);
  std::vector<int32_t> stop;
  if (template_->end_of_turn() >= 0) stop.push_back(template_->end_of_turn());
  const TextConfig& text = model_.config->text;
  if (text.eos_token_id >= 0 && text.eos_token_id < text.vocab_size) {
    stop.push_back(static_cast<int32_t>(text.eos_token_id));
  }
  const std::vector<int32_t> ids = generator.Continue(
      prompt.ids, pixels.empty() ? at::Tensor() : at::cat(pixels), stop, options);
  return tokenizer_->Decode(ids, /*skip_special=*/true);
}

}  // namespace equipoise
