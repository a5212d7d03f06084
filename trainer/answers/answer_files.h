#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trainer/answers/answer_eval.h"

namespace equipoise {

// Answers before training: (source's annotations, sample) -> answer.
using AnswersBefore = std::map<std::pair<std::string, int64_t>, std::string>;

// Writes answers as JSON lines: source, sample, id, images, question, reference, answer, `exact`
// (true or false), the other AnswerScores, `fault` where there is no answer (see SampleAnswer), and
// `before` where the sample was also answered before training. Throws RunError.
void WriteAnswers(const std::string& path, const std::vector<AnsweredSource>& sources,
                  const AnswersBefore& before = {});

// Reads the answers of a file by WriteAnswers(); empty when it does not exist. Lines that are not
// such objects are ignored.
AnswersBefore ReadAnswers(const std::string& path);

}  // namespace equipoise
