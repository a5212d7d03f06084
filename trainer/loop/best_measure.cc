#include "trainer/loop/best_measure.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "configs/base/error.h"
#include "configs/yaml/config_json.h"
#include "parallel/schedule/plan_hash.h"
#include "trainer/answers/answer_eval.h"
#include "trainer/common/durable_file.h"

namespace equipoise {
namespace {

constexpr const char* kLoss = "eval_loss";

void CheckLoss(const RunConfig& config) {
  if (config.data.eval.empty())
    throw ConfigError("checkpoint.best: eval_loss is measured on data.eval, which is empty");
  if (config.eval.every == 0 && config.eval.epochs == 0)
    throw ConfigError(
        "checkpoint.best: eval_loss is measured at the end alone; set eval.every or eval.epochs");
}

// The value of a set's measure; nothing where it was not measured.
std::optional<double> ValueOf(const StepResult& step, const std::string& set,
                              const std::string& measure) {
  std::optional<double> value;
  for (const SetScores& scores : step.answers) {
    if (scores.set != set) continue;
    AnswerScores::VisitFields(scores.scores, [&](const std::string& name, const auto& field) {
      if (name == measure) value = field;
    });
  }
  return value;
}

}  // namespace

BestMeasure::BestMeasure(const RunConfig& config) : name_(config.checkpoint.best) {
  if (name_.empty()) return;
  StableHash hash;
  if (name_ == kLoss) {
    CheckLoss(config);
    hash.Add(ConfigToJson(config.data).at("eval").dump());
    hash.Add(static_cast<uint64_t>(config.eval.samples));
    data_ = HexDigits(hash.value());
    return;
  }
  const size_t slash = name_.rfind('/');
  if (slash != std::string::npos) {
    set_ = name_.substr(0, slash);
    measure_ = name_.substr(slash + 1);
  }
  const std::vector<std::string> sets = AnswerSetNames(config.eval.answers);
  const auto found = std::find(sets.begin(), sets.end(), set_);
  source_ = static_cast<size_t>(found - sets.begin());
  const bool known =
      found != sets.end() &&
      std::find(kAnswerMeasures.begin(), kAnswerMeasures.end(), measure_) != kAnswerMeasures.end();
  if (!known) {
    throw ConfigError(fmt::format(
        "checkpoint.best: '{}' is neither {} nor SET/MEASURE with a set of eval.answers ({}) and "
        "one of {}",
        name_, kLoss, sets.empty() ? "there is none" : fmt::format("{}", fmt::join(sets, ", ")),
        fmt::join(kAnswerMeasures, ", ")));
  }
  if (config.eval.answer_every == 0 && config.eval.epochs == 0) {
    throw ConfigError(fmt::format(
        "checkpoint.best: {} is measured at the end alone; set eval.answer_every or eval.epochs",
        name_));
  }
  hash.Add(ConfigToJson(config.eval).at("answers").at(source_).dump());
  hash.Add(static_cast<uint64_t>(config.eval.answer_samples));
  hash.Add(static_cast<uint64_t>(config.eval.answer_tokens));
  data_ = HexDigits(hash.value());
}

void BestMeasure::CheckChoice(const std::function<bool(size_t source)>& has_choice) const {
  if (measure_ != "choice" || has_choice(source_)) return;
  throw ConfigError(fmt::format(
      "checkpoint.best: {} is never measured: no question of {} that is asked lists options, "
      "\"A. ...\" a line, one of them its answer; choose another measure, such as {}/exact",
      name_, set_, set_));
}

bool BestMeasure::Improves(const StepResult& step, TrainState& state) const {
  if (name_.empty()) return false;
  const bool loss = name_ == kLoss;
  const std::optional<double> value = loss ? step.eval_loss : ValueOf(step, set_, measure_);
  if (!value || !std::isfinite(*value)) return false;
  const bool first = !state.best || state.best->measure != name_ ||
                     (!state.best->data.empty() && state.best->data != data_);
  if (!first && (loss ? *value >= state.best->value : *value <= state.best->value)) return false;
  state.best = BestStep{name_, *value, state.step, data_};
  return true;
}

}  // namespace equipoise
