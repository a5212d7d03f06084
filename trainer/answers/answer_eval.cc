#include "trainer/answers/answer_eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <utility>

namespace equipoise {
namespace {

bool IsImageDefect(Defect defect) {
  return defect == Defect::kImageMissing || defect == Defect::kImageOutside ||
         defect == Defect::kImageUnreadable || defect == Defect::kImageTooLarge;
}

// The sample without its answer; empty for one that does not end with a question and its answer.
std::optional<SampleAnswer> Describe(const ScannedSample& scanned, int64_t sample) {
  const std::vector<Turn>& turns = scanned.record.turns;
  if (turns.size() < 2 || turns.back().role != Role::kAssistant) return std::nullopt;
  SampleAnswer described;
  described.sample = sample;
  described.id = scanned.record.id;
  described.images = scanned.record.images;
  described.question = turns[turns.size() - 2].text;
  described.reference = turns.back().text;
  return described;
}

}  // namespace

AskedQuestion AskSample(const Responder& responder, const Dataset& dataset, int64_t sample,
                        bool decode) {
  std::vector<std::string> files;
  ScannedSample scanned = dataset.Scan(sample, &files);
  if (scanned.defect != Defect::kNone) return {std::nullopt, scanned.reason};
  std::vector<NamedPicture> pictures;
  for (size_t i = 0; i < files.size(); ++i)
    pictures.push_back({scanned.record.images[i], std::move(files[i])});
  scanned.record.turns.pop_back();
  return responder.Ask(std::move(scanned.record), pictures, decode,
                       &dataset.processor(scanned.source));
}

std::vector<int64_t> AnswerableSamples(const CostIndex& index, int64_t most) {
  std::vector<int64_t> samples;
  for (int64_t s = 0; s < index.size() && std::ssize(samples) < most; ++s) {
    const Defect defect = index[s].defect;
    if (defect == Defect::kNone || IsImageDefect(defect)) samples.push_back(s);
  }
  return samples;
}

bool HasChoice(const Dataset& dataset, const std::vector<int64_t>& samples) {
  return std::any_of(samples.begin(), samples.end(), [&](int64_t sample) {
    const auto described = Describe(dataset.Scan(sample), sample);
    return described && ScoreAnswer(described->question, {described->reference}, "").choice;
  });
}

std::optional<std::vector<SampleAnswer>> AnswerSamples(AnswerSession& session,
                                                       const Responder& responder,
                                                       const Questions& questions,
                                                       const GenerateOptions& options,
                                                       const std::function<bool()>& stop) {
  std::vector<SampleAnswer> answers;
  QuestionList list;
  for (const int64_t sample : questions.samples) {
    auto described = Describe(questions.dataset.Scan(sample), sample);
    if (!described) continue;
    answers.push_back(std::move(*described));
    list.lengths.push_back(questions.dataset.index()[sample].tokens);
  }
  list.ask = [&](int64_t question, bool decode) {
    return AskSample(responder, questions.dataset, answers[static_cast<size_t>(question)].sample,
                     decode);
  };
  const auto given = session.Answer(list, questions.limits, options, stop);
  if (!given) return std::nullopt;
  for (size_t i = 0; i < answers.size(); ++i) {
    SampleAnswer& answer = answers[i];
    answer.answer = (*given)[i].text;
    answer.fault = (*given)[i].fault;
    answer.cut = (*given)[i].cut;
    const AnswerScores scores = ScoreAnswer(answer.question, {answer.reference}, answer.answer);
    answer.scores = answer.fault.empty() ? scores : scores.OfNone();
  }
  return answers;
}

int64_t AnsweredSource::exact() const {
  return std::count_if(answers.begin(), answers.end(), [](const auto& a) { return a.exact(); });
}

int64_t AnsweredSource::faults() const {
  return std::count_if(answers.begin(), answers.end(),
                       [](const auto& a) { return !a.fault.empty(); });
}

int64_t AnsweredSource::cut() const {
  return std::count_if(answers.begin(), answers.end(), [](const auto& a) { return a.cut; });
}

AnswerScores AnsweredSource::Mean() const {
  std::vector<AnswerScores> all;
  for (const SampleAnswer& answer : answers) all.push_back(answer.scores);
  return MeanOf(all);
}

std::vector<std::string> AnswerSetNames(const std::vector<SourceConfig>& sources) {
  std::vector<std::string> names;
  std::map<std::string, int> uses;
  for (const SourceConfig& source : sources) {
    names.push_back(std::filesystem::path(source.annotations).stem().string());
    ++uses[names.back()];
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (uses[names[i]] > 1) names[i] += fmt::format("-{}", i);
  }
  return names;
}

}  // namespace equipoise
