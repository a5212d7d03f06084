#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/loading/loader.h"
#include "parallel/comm/communicator.h"
#include "trainer/answers/answer.h"

namespace equipoise {

// The model's answer to a sample's last question.
struct SampleAnswer {
  int64_t sample = 0;  // id in the index
  std::string id;
  std::vector<std::string> images;  // file names of the record
  std::string question, reference, answer;
  std::string fault;   // why there is no answer, such as a picture that cannot be decoded
  bool exact = false;  // answer == reference; false with a fault
};

// The first `most` samples with a question and its answer. Samples whose pictures cannot be used
// are included and count as wrong answers, so that accuracy is always over all questions.
std::vector<int64_t> AnswerableSamples(const CostIndex& index, int64_t most);

// Samples of a dataset whose questions are answered, and the most tokens of an answer.
struct Questions {
  const Dataset& dataset;
  std::vector<int64_t> samples;
  int64_t max_new_tokens;
};

// Answers the last question of each sample by greedy decoding, distributed round-robin over the
// ranks of `world`; returns all answers on every rank, in the order of the samples. Collective.
// `stop` is called after every few answers, on all ranks together, and must return the same value
// on each; when it returns true, nothing is returned.
std::optional<std::vector<SampleAnswer>> AnswerSamples(const Responder& responder,
                                                       const Questions& questions,
                                                       Communicator& world,
                                                       const std::function<bool()>& stop = nullptr);

// The answers to one source's samples.
struct AnsweredSource {
  SourceConfig source;
  std::vector<SampleAnswer> answers;

  int64_t exact() const;
  int64_t faults() const;
  double exact_share() const;  // 0 without answers
};

}  // namespace equipoise
