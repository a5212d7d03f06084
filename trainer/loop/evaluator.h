#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/answers/answer_eval.h"
#include "trainer/answers/generation_settings.h"
#include "trainer/loop/replica.h"
#include "trainer/loop/run_context.h"
#include "trainer/run/open_data.h"

namespace equipoise {

// Number of answers of each source in the report, and of those generated before training.
inline constexpr int64_t kShownAnswers = 8;

// Evaluates a model: its loss on data.eval, and its answers to the questions of eval.answers.
class Evaluator {
 public:
  // Opens the data. Collective. Throws ConfigError and DataError.
  explicit Evaluator(RunContext& context);

  bool has_held_out() const { return held_out_.has_value(); }
  // Mean loss on data.eval; nothing when none of its samples can be used. Collective. REQUIRES:
  // has_held_out().
  std::optional<double> HeldOutLoss(Replica& replica);

  // Whether AnswerScores::choice is measured on source `source` of eval.answers.
  bool HasChoice(size_t source) const;

  // Answers the questions of eval.answers with the replicas' models, where they lie. Returns
  // nothing when a stop is requested meanwhile. Collective.
  std::optional<std::vector<AnsweredSource>> Answer(Replica& replica) const;
  // Answers the first kShownAnswers questions of each source, before training; none when a stop is
  // requested meanwhile. Collective. Throws DataError where any question's answer would grow beyond
  // the model's sliding window.
  std::vector<AnsweredSource> AnswerFirst(Replica& replica) const;

 private:
  void RequireWithinWindow(const ModelConfig& model) const;
  // Number of questions of each source that are asked; more than there are without a limit.
  int64_t asked() const;
  // Answers at most `most` questions of each source, as Answer(); `when` ends the lines that say
  // so.
  std::optional<std::vector<AnsweredSource>> AnswerSources(Replica& replica, int64_t most,
                                                           std::string_view when) const;

  RunContext& context_;
  std::optional<OpenedData> held_out_;                // absent where data.eval is empty
  std::vector<std::unique_ptr<OpenedData>> sources_;  // of eval.answers
  GenerationSettings generation_;                     // of the model's folder
};

}  // namespace equipoise
