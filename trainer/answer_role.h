#pragma once

#include <vector>

#include "trainer/answer_eval.h"
#include "trainer/report.h"

namespace equipoise {

// The role of each source. `train`, `eval`: data.train and data.eval.
std::vector<AnswerRole> AnswerRoles(const std::vector<AnsweredSource>& sources,
                                    const std::vector<SourceConfig>& train,
                                    const std::vector<SourceConfig>& eval);

}  // namespace equipoise
