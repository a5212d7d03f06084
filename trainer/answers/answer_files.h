#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trainer/answers/answer_eval.h"

namespace equipoise {

// (source's annotations, sample) -> answer
using AnswersBefore = std::map<std::pair<std::string, int64_t>, std::string>;

// Writes answers as JSON lines: source, sample, id, images, question, reference, answer, exact,
// `fault` where there is no answer (see SampleAnswer), and `before` where the sample was answered
// before training too. Throws RunError.
void WriteAnswers(const std::string& path, const std::vector<AnsweredSource>& sources,
                  const AnswersBefore& before = {});

// The answers of such a file; none where it is absent. Lines that are no such objects are passed
// over.
AnswersBefore ReadAnswers(const std::string& path);

}  // namespace equipoise
