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

// One sample's question, answered by the model.
struct SampleAnswer {
  int64_t sample = 0;  // id in the index
  std::string id;
  std::vector<std::string> images;  // as the record names them
  std::string question, reference, answer;
  std::string fault;   // why there is no answer, such as a picture that does not decode
  bool exact = false;  // answer == reference; never with a fault
};

// The first `most` samples that hold a question and its answer. One whose pictures cannot be used
// is among them and counts as answered wrongly, so that a share is always of all questions.
std::vector<int64_t> AnswerableSamples(const CostIndex& index, int64_t most);

// Questions of a dataset, by samples, and how long an answer may be.
struct Questions {
  const Dataset& dataset;
  std::vector<int64_t> samples;
  int64_t max_new_tokens;
};

// Answers the last question of each sample greedily, dealt over the ranks of `world`; every rank
// gets all answers, in the order of the samples. Collective. `stop`, where given, is asked after
// every few answers, on all ranks at once, and says the same on each: nothing is returned when it
// says yes.
std::optional<std::vector<SampleAnswer>> AnswerSamples(const Responder& answerer,
                                                       const Questions& questions,
                                                       Communicator& world,
                                                       const std::function<bool()>& stop = nullptr);

// One source's samples, answered.
struct AnsweredSource {
  SourceConfig source;
  std::vector<SampleAnswer> answers;

  int64_t exact() const;
  int64_t faults() const;
  double exact_share() const;  // 0 for none
};

}  // namespace equipoise
