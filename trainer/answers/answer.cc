#include "trainer/answers/answer.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "configs/base/shown_text.h"
#include "models/families/families.h"
#include "parallel/comm/gather_text.h"
#include "parallel/comm/values.h"

namespace equipoise {
namespace {

// In place of the pixels of a picture that cannot be decoded.
at::Tensor BlankPixels(const ImageSpec& spec, int64_t patches) {
  if (spec.has_grids()) return at::zeros({patches, spec.patch_numbers()}, at::kByte);
  return at::zeros({spec.TilesOf(patches), 3, spec.tile_size, spec.tile_size}, at::kByte);
}

}  // namespace

Responder::Responder(const ModelConfig* config, const Tokenizer* tokenizer,
                     const ChatTemplate* chat_template, const DataConfig* data,
                     GenerationSettings settings)
    : config_(config),
      tokenizer_(tokenizer),
      template_(chat_template),
      data_(data),
      settings_(std::move(settings)),
      processor_(ImageSpecOf(*config), data->tiles) {}

Responder::Shown Responder::Show(const Record& record, const std::vector<NamedPicture>& pictures,
                                 RecordImages& images, size_t first, bool decode,
                                 const ImageProcessor& processor) const {
  const ImageSpec& spec = processor.spec();
  const Video* video = record.VideoOf(first);
  const int64_t count = record.SharingTiles(first);
  size_t at = first;
  const auto named = [&](const ImageError& error) {
    return fmt::format("{}: {}", ShownText(pictures[at].name), error.what());
  };
  Shown shown;
  ImageSize size;
  try {
    size = images.SizeOf(first);
    for (size_t i = 1; video != nullptr && i < video->frames; ++i) {
      at = first + i;
      const ImageSize other = images.SizeOf(at);
      if (other.width != size.width || other.height != size.height) {
        throw ImageError("not of the size of the video's first frame");
      }
    }
    at = first;
    if (video != nullptr) {
      shown.grid = processor.GridOf(size, *video);
      shown.load = spec.LoadOfGrid(shown.grid);
    } else {
      shown.load = processor.Measure(size, count);
      if (spec.lists_grids()) shown.grid = processor.GridOf(size, count);
    }
  } catch (const ImageError& error) {
    throw ImageError(named(error));
  }
  if (!decode) return shown;
  const auto frame = [&](size_t number) {
    at = first + number;
    return images.Decode(at);
  };
  try {
    shown.pixels =
        video == nullptr ? processor.Make(frame(0), count) : processor.Make(size, *video, frame);
  } catch (const ImageError& error) {
    shown.fault = named(error);
    shown.pixels = BlankPixels(spec, shown.load.patches);
  }
  return shown;
}

AskedQuestion Responder::Ask(Record record, const std::vector<NamedPicture>& pictures, bool decode,
                             const ImageProcessor* processor) const {
  if (!record.tools.empty() && !template_->takes_tools())
    return {std::nullopt, "'tools' is given, for which this data.template has no place"};
  const size_t frames = record.images.size() - record.pictures();
  const std::string misplaced = PlaceImages(record.turns, pictures.size() - frames);
  if (!misplaced.empty()) throw DataError(fmt::format("prompt: {}", misplaced));
  const ImageSpec& spec = processor_.spec();
  if (!pictures.empty() && !spec.takes_pictures())
    throw DataError("prompt: this model has no image encoder; leave the pictures out");
  AskedQuestion asked;
  Prompt prompt;
  std::vector<int64_t> image_tokens;
  std::vector<at::Tensor> pixels;
  std::vector<std::string_view> files;
  for (const NamedPicture& picture : pictures) files.emplace_back(picture.bytes);
  RecordImages images(record, std::move(files),
                      {data_->limits.image_pixels, data_->limits.image_bytes});
  for (size_t i = 0; i < pictures.size();) {
    Shown shown;
    try {
      shown =
          Show(record, pictures, images, i, decode, processor != nullptr ? *processor : processor_);
    } catch (const ImageError& error) {
      return {std::nullopt, error.what()};
    }
    prompt.pictures += shown.load;
    image_tokens.push_back(shown.load.image_tokens);
    if (spec.lists_grids()) prompt.grids.push_back(shown.grid);
    if (shown.pixels.defined()) pixels.push_back(std::move(shown.pixels));
    if (asked.fault.empty()) asked.fault = std::move(shown.fault);
    const Video* video = record.VideoOf(i);
    i += video == nullptr ? 1 : video->frames;
  }
  EncodedConversation encoded =
      template_->Encode(record.turns, image_tokens, /*with_answer_prompt=*/true, record.tools);
  prompt.ids = std::move(encoded.ids);
  prompt.begins = std::move(encoded.image_begin);
  if (!pixels.empty()) prompt.pixel_values = at::cat(pixels);
  asked.prompt = std::move(prompt);
  return asked;
}

std::string Responder::Text(const std::vector<int32_t>& answer) const {
  return tokenizer_->Decode(answer, /*skip_special=*/true);
}

std::vector<std::vector<int64_t>> BatchesByLength(const std::vector<int64_t>& lengths,
                                                  const BatchLimits& limits) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  const auto length = [&](int64_t i) { return lengths[static_cast<size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return length(a) > length(b); });
  std::vector<std::vector<int64_t>> batches;
  int64_t sum = 0;
  for (const int64_t question : order) {
    const bool full = batches.empty() || std::ssize(batches.back()) >= limits.questions ||
                      (limits.length > 0 && sum + length(question) > limits.length);
    if (full) {
      batches.emplace_back();
      sum = 0;
    }
    batches.back().push_back(question);
    sum += length(question);
  }
  return batches;
}

// A question that one rank of a model cannot ask, of whose pictures a read has failed there, is
// asked by none: the ranks' batches would differ. Collective over the ranks of the model.
void AnswerSession::AgreeOnPrompts(std::vector<AskedQuestion>& asked) const {
  const MeshGroups& groups = model_.groups();
  std::vector<int64_t> absent;
  for (const AskedQuestion& one : asked) absent.push_back(one.prompt ? 0 : 1);
  for (const Axis axis : {Axis::kPipeline, Axis::kContext, Axis::kTensor}) {
    if (groups.mesh.size(axis) > 1)
      absent = AllReduceValues(groups.along(axis), absent, ReduceOp::kMax);
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    if (absent[i] != 0 && asked[i].prompt)
      asked[i] = {std::nullopt, "another rank could not read its pictures"};
  }
}

std::vector<NumberedAnswer> AnswerSession::AnswerBatches(
    const QuestionList& questions, const std::vector<std::vector<int64_t>>& batches,
    const GenerateOptions& options, const GiveUp& give_up) {
  std::vector<AskedQuestion> all;
  for (const std::vector<int64_t>& batch : batches) {
    for (const int64_t question : batch)
      all.push_back(questions.ask(question, model_.part().needs_pictures()));
  }
  AgreeOnPrompts(all);
  std::vector<std::vector<Prompt>> prompts;
  std::vector<NumberedAnswer> asked, without;  // in the order of the prompts; without one
  size_t number = 0;
  for (const std::vector<int64_t>& batch : batches) {
    std::vector<Prompt>& row = prompts.emplace_back();
    for (const int64_t question : batch) {
      AskedQuestion& one = all[number++];
      std::vector<NumberedAnswer>& place = one.prompt ? asked : without;
      place.push_back({question, {"", std::move(one.fault)}});
      if (!one.prompt) continue;
      one.prompt->number = static_cast<uint64_t>(question);
      row.push_back(std::move(*one.prompt));
    }
  }
  std::erase_if(prompts, [](const std::vector<Prompt>& row) { return row.empty(); });
  const auto answers = Generator(model_).Continue(prompts, responder_.stop_ids(), options, give_up);
  if (!model_.reports_loss()) return {};
  size_t next = 0;
  for (const auto& row : answers) {
    for (const std::vector<int32_t>& answer : row) {
      GivenAnswer& given = asked[next++].answer;
      if (!given.fault.empty()) continue;
      given.text = responder_.Text(answer);
      given.cut = std::ssize(answer) >= options.max_new_tokens;
    }
  }
  asked.insert(asked.end(), without.begin(), without.end());
  return asked;
}

std::string TextOf(const std::vector<NumberedAnswer>& answers) {
  Json json = Json::array();
  for (const auto& [question, given] : answers)
    json.push_back(Json::array({question, given.text, given.fault, given.cut}));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<NumberedAnswer> AnswersOf(std::string_view text) {
  std::vector<NumberedAnswer> answers;
  try {
    for (const Json& one : Json::parse(text)) {
      answers.push_back(
          {one.at(0).get<int64_t>(),
           {one.at(1).get<std::string>(), one.at(2).get<std::string>(), one.at(3).get<bool>()}});
    }
  } catch (const Json::exception& error) {
    throw DataError(fmt::format("answers: {}", error.what()));
  }
  return answers;
}

std::optional<std::vector<GivenAnswer>> AnswerSession::Answer(const QuestionList& questions,
                                                              const BatchLimits& limits,
                                                              const GenerateOptions& options,
                                                              const std::function<bool()>& stop,
                                                              const AnswerKeeping& keeping) {
  std::vector<GivenAnswer> answers(questions.lengths.size());
  std::vector<bool> known(answers.size());
  const auto take = [&](const std::vector<NumberedAnswer>& some) {
    for (const auto& [question, given] : some) {
      answers.at(static_cast<size_t>(question)) = given;
      known.at(static_cast<size_t>(question)) = true;
    }
  };
  take(keeping.known);
  // Batches are left out whole: which questions share one is the same as without known answers.
  std::vector<std::vector<int64_t>> batches = BatchesByLength(questions.lengths, limits);
  std::erase_if(batches, [&](const std::vector<int64_t>& batch) {
    return std::all_of(batch.begin(), batch.end(),
                       [&](int64_t question) { return known[static_cast<size_t>(question)]; });
  });
  const int of_model = model_.plan().data();
  const auto data = static_cast<size_t>(models_.count * of_model);
  const auto data_rank = static_cast<size_t>(models_.number * of_model + model_.groups().at.data);
  // As many as fill a pipeline, of each data rank.
  const size_t round = data * static_cast<size_t>(model_.plan().pipeline());
  // Every data rank takes part in every round, without a batch in the last one perhaps: what
  // follows is collective.
  for (size_t first = 0; first < batches.size(); first += round) {
    std::vector<std::vector<int64_t>> mine;
    for (size_t i = first + data_rank; i < std::min(first + round, batches.size()); i += data)
      mine.push_back(batches[i]);
    std::vector<NumberedAnswer> given;
    for (const std::string& part :
         GatherText(world_, TextOf(AnswerBatches(questions, mine, options, {&world_, stop})))) {
      for (NumberedAnswer& one : AnswersOf(part)) given.push_back(std::move(one));
    }
    if (stop && stop()) return std::nullopt;  // some answers may have been given up
    take(given);
    if (keeping.keep) keeping.keep(given);
  }
  return answers;
}

}  // namespace equipoise
