#pragma once

#include <vector>

#include "trainer/answers/answer_eval.h"
#include "trainer/outputs/report.h"

namespace equipoise {

// The role of each source. `train`, `eval`: data.train and data.eval; for a source that is neither,
// the training records are read, a few hundred thousand at most. A file that cannot be read or a
// line that is no record is passed over.
std::vector<AnswerRole> AnswerRoles(const std::vector<AnsweredSource>& sources,
                                    const std::vector<SourceConfig>& train,
                                    const std::vector<SourceConfig>& eval);

}  // namespace equipoise
