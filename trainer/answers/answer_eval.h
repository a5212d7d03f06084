#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/loading/loader.h"
#include "trainer/answers/answer.h"
#include "trainer/answers/answer_scores.h"

namespace equipoise {

// The model's answer to a sample's last question.
struct SampleAnswer {
  int64_t sample = 0;  // id in the index
  std::string id;
  std::vector<std::string> images;  // file names of the record
  std::string question, reference, answer;
  std::string fault;    // why there is no answer, such as a picture that cannot be decoded
  AnswerScores scores;  // zeros with a fault
  bool cut = false;     // it has as many tokens as an answer may have

  bool exact() const { return scores.exact > 0; }
};

// The first `most` samples with a question and its answer. Samples whose pictures cannot be used
// are included and count as wrong answers, so that accuracy is always over all questions.
std::vector<int64_t> AnswerableSamples(const CostIndex& index, int64_t most);

// Whether AnswerScores::choice is measured on one of the samples: its last question lists options,
// and its answer is one of them.
bool HasChoice(const Dataset& dataset, const std::vector<int64_t>& samples);

// The last question of a sample as training has it: tools, tiles and all. `decode` as of
// Responder::Ask().
AskedQuestion AskSample(const Responder& responder, const Dataset& dataset, int64_t sample,
                        bool decode);

// Samples of a dataset whose questions are answered.
struct Questions {
  const Dataset& dataset;
  std::vector<int64_t> samples;
  BatchLimits limits;  // lengths are the samples' tokens
};

// Answers the last question of each sample; returns all answers on every rank, in the order of the
// samples. Those that do not end with a question and its answer are left out. Collective and
// stopped as AnswerSession::Answer().
std::optional<std::vector<SampleAnswer>> AnswerSamples(AnswerSession& session,
                                                       const Responder& responder,
                                                       const Questions& questions,
                                                       const GenerateOptions& options,
                                                       const std::function<bool()>& stop = nullptr);

// The answers to one source's samples.
struct AnsweredSource {
  SourceConfig source;
  std::vector<SampleAnswer> answers;

  int64_t exact() const;
  int64_t faults() const;
  int64_t cut() const;
  // Means over the answers (of `choice`, over those that have it); zeros without any.
  AnswerScores Mean() const;
};

// A short name of each source in metrics: the annotations' file without its ending; with its number
// in the list where that is not unique.
std::vector<std::string> AnswerSetNames(const std::vector<SourceConfig>& sources);

}  // namespace equipoise
