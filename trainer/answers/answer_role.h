#pragma once

#include <vector>

#include "trainer/answers/answer_eval.h"
#include "trainer/outputs/report.h"

namespace equipoise {

// The role of each source in the report. `train`, `eval`: data.train and data.eval. A source that
// is in neither is a control when most of its questions have another answer in the training data,
// of which at most the first few hundred thousand records are read. Unreadable files and malformed
// lines are ignored.
std::vector<AnswerRole> AnswerRoles(const std::vector<AnsweredSource>& sources,
                                    const std::vector<SourceConfig>& train,
                                    const std::vector<SourceConfig>& eval);

}  // namespace equipoise
