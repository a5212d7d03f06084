#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/images/image_processor.h"
#include "data/settings/data_config.h"
#include "data/text/chat_template.h"
#include "data/text/conversation.h"
#include "data/text/tokenizer.h"
#include "data/videos/record_images.h"
#include "models/spec/model_config.h"
#include "parallel/comm/communicator.h"
#include "trainer/answers/generation_settings.h"
#include "trainer/answers/generator.h"
#include "trainer/run/parallel_model.h"

namespace equipoise {

// A question as the model takes it.
struct AskedQuestion {
  std::optional<Prompt> prompt;  // absent: it cannot be asked, on no rank
  // Why there is no prompt; or with one, found by ranks that decode alone: why its pictures, which
  // are blank there, are no pictures.
  std::string fault;
};

// The bytes of a picture's file, and its name for messages; of a video's file its bytes at its
// first frame alone.
struct NamedPicture {
  std::string name, bytes;
};

// Makes prompts of conversations with pictures, and texts of answers. The objects pointed to must
// outlive it. Thread-safe.
class Responder {
 public:
  Responder(const ModelConfig* config, const Tokenizer* tokenizer,
            const ChatTemplate* chat_template, const DataConfig* data,
            GenerationSettings settings = {});

  // The prompt of a record, whose turns end with a user turn and whose videos are arranged. Its
  // pictures and frames are decoded where `decode` says so, else the prompt has their shape alone
  // (missing placeholders of pictures are added before the text). `processor`: of the pictures of
  // its source; null: as data.tiles says. Throws DataError when there are other numbers of them, or
  // the model takes none.
  AskedQuestion Ask(Record record, const std::vector<NamedPicture>& pictures, bool decode,
                    const ImageProcessor* processor = nullptr) const;
  // The tokens that end an answer.
  std::vector<int32_t> stop_ids() const {
    return EndTokens(template_->end_of_turn(), *config_, settings_);
  }
  std::string Text(const std::vector<int32_t>& answer) const;

 private:
  // A picture, or a video, as the prompt has it.
  struct Shown {
    PictureLoad load;
    PatchGrid grid;     // where ImageSpec::lists_grids()
    at::Tensor pixels;  // where they are decoded
    std::string fault;  // with which they are blank
  };
  // Picture `first`, or the video that begins with it. Throws ImageError for one that cannot be
  // asked about.
  Shown Show(const Record& record, const std::vector<NamedPicture>& pictures, RecordImages& images,
             size_t first, bool decode, const ImageProcessor& processor) const;

  const ModelConfig* config_;
  const Tokenizer* tokenizer_;
  const ChatTemplate* template_;
  const DataConfig* data_;
  GenerationSettings settings_;
  ImageProcessor processor_;
};

// Questions by their number.
struct QuestionList {
  // Of each question, in tokens or another unit: those alike are answered side by side.
  std::vector<int64_t> lengths;
  // `decode`: whether this rank decodes pictures.
  std::function<AskedQuestion(int64_t question, bool decode)> ask;
};

struct BatchLimits {
  int64_t questions = 16;  // answered side by side
  int64_t length = 0;      // sum of their lengths, unless one alone has more; 0: no limit
};

// The numbers of the questions in batches alike in length, the longest first. Pure: which questions
// share a batch depends on no mesh, and so no answer does.
std::vector<std::vector<int64_t>> BatchesByLength(const std::vector<int64_t>& lengths,
                                                  const BatchLimits& limits);

// The answer to a question, or why there is none.
struct GivenAnswer {
  std::string text, fault;
  bool cut = false;  // it has as many tokens as an answer may have
};

// The answer to a question of that number.
struct NumberedAnswer {
  int64_t question = 0;
  GivenAnswer answer;
};

// Some answers as one line of JSON; bytes that are no UTF-8 are replaced.
std::string TextOf(const std::vector<NumberedAnswer>& answers);
// The answers of such a text. Throws DataError.
std::vector<NumberedAnswer> AnswersOf(std::string_view text);

// Answers that outlive the program.
struct AnswerKeeping {
  std::vector<NumberedAnswer> known;  // which are not asked for again
  // Called with those of each round, on all ranks together.
  std::function<void(const std::vector<NumberedAnswer>&)> keep;
};

// Answers questions with a model where it lies: the data ranks share the batches, and the ranks of
// a replica answer each together.
class AnswerSession {
 public:
  // The models of the world's ranks, alike, that share the questions, and which this one is.
  struct Models {
    int count = 1, number = 0;
  };
  // The objects must outlive it.
  AnswerSession(ParallelModel& model, const Responder& responder, Communicator& world)
      : AnswerSession(model, responder, world, {}) {}
  AnswerSession(ParallelModel& model, const Responder& responder, Communicator& world,
                Models models)
      : model_(model), responder_(responder), world_(world), models_(models) {}

  // All answers, in the order of the questions, on every rank. Collective over the world. `stop` is
  // called after every few tokens and answers, on all ranks together, and must return the same
  // value on each; when it returns true, it does so from then on, and nothing is returned.
  std::optional<std::vector<GivenAnswer>> Answer(const QuestionList& questions,
                                                 const BatchLimits& limits,
                                                 const GenerateOptions& options,
                                                 const std::function<bool()>& stop = nullptr,
                                                 const AnswerKeeping& keeping = {});

 private:
  void AgreeOnPrompts(std::vector<AskedQuestion>& asked) const;
  // Of this rank's data rank, by number, as the rank that reports has them; else empty.
  std::vector<NumberedAnswer> AnswerBatches(const QuestionList& questions,
                                            const std::vector<std::vector<int64_t>>& batches,
                                            const GenerateOptions& options, const GiveUp& give_up);

  ParallelModel& model_;
  const Responder& responder_;
  Communicator& world_;
  Models models_;
};

}  // namespace equipoise
