#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "trainer/checkpoint/checkpoint_index.h"
#include "trainer/loop/step_result.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// The measure by which the best checkpoint is chosen (checkpoint.best). Pure.
class BestMeasure {
 public:
  // Throws ConfigError where checkpoint.best names nothing that this run measures.
  explicit BestMeasure(const RunConfig& config);

  // Throws ConfigError where it is the choice of options, and the questions of its set list none.
  // `has_choice`: whether AnswerScores::choice is measured on a source of eval.answers.
  void CheckChoice(const std::function<bool(size_t source)>& has_choice) const;

  // Sets state.best where what was measured after this step is the best yet; true then. Of equal
  // results the first counts; what is not finite never does. Results on other data are no rivals.
  bool Improves(const StepResult& step, TrainState& state) const;

 private:
  std::string name_;           // as configured; empty: none
  std::string set_, measure_;  // of answers; empty: eval_loss
  size_t source_ = 0;          // of eval.answers, that of set_
  std::string data_;           // hash of the settings of what it is measured on
};

}  // namespace equipoise
