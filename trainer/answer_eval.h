#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/loader.h"
#include "parallel/comm/communicator.h"
#include "trainer/answer.h"

namespace equipoise {

// One sample's question, answered by the model.
struct SampleAnswer {
  int64_t sample = 0;  // id in the index
  std::string id;
  std::vector<std::string> images;  // as the record names them
  std::string question, reference, answer;
  bool exact = false;  // answer == reference
};

// Answers the last question of `samples` greedily, dealt over the ranks of `world`; every rank gets
// all answers, in the order of `samples`. Collective. Samples whose pictures do not decode are left
// out.
std::vector<SampleAnswer> AnswerSamples(const Answerer& answerer, const Dataset& dataset,
                                        const std::vector<int64_t>& samples, int64_t max_new_tokens,
                                        Communicator& world);

// One source's samples, answered.
struct AnsweredSource {
  SourceConfig source;
  std::vector<SampleAnswer> answers;

  int64_t exact() const;
  double exact_share() const;  // 0 for none
};

}  // namespace equipoise
