#include "trainer/answers/answer_eval.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "configs/base/json.h"
#include "data/images/image.h"
#include "parallel/comm/gather_text.h"

namespace equipoise {
namespace {

// Checking for a stop synchronizes the ranks; over several answers their lengths even out.
constexpr size_t kAnswersBetweenStops = 4;

Json ToJson(const SampleAnswer& a) {
  return {{"sample", a.sample},       {"id", a.id},
          {"images", a.images},       {"question", a.question},
          {"reference", a.reference}, {"answer", a.answer},
          {"fault", a.fault},         {"exact", a.exact}};
}

SampleAnswer FromJson(const Json& json) {
  SampleAnswer a;
  a.sample = json.at("sample").get<int64_t>();
  a.id = json.at("id").get<std::string>();
  a.images = json.at("images").get<std::vector<std::string>>();
  a.question = json.at("question").get<std::string>();
  a.reference = json.at("reference").get<std::string>();
  a.answer = json.at("answer").get<std::string>();
  a.fault = json.at("fault").get<std::string>();
  a.exact = json.at("exact").get<bool>();
  return a;
}

bool IsImageDefect(Defect defect) {
  return defect == Defect::kImageMissing || defect == Defect::kImageOutside ||
         defect == Defect::kImageUnreadable || defect == Defect::kImageTooLarge;
}

// Empty for a sample that does not end with a question and its answer.
std::optional<SampleAnswer> AnswerOne(const Responder& responder, const Dataset& dataset,
                                      int64_t sample, int64_t max_new_tokens) {
  std::vector<std::string> files;
  const ScannedSample scanned = dataset.Scan(sample, &files);
  std::vector<Turn> turns = scanned.record.turns;
  if (turns.size() < 2 || turns.back().role != Role::kAssistant) return std::nullopt;
  SampleAnswer result;
  result.sample = sample;
  result.id = scanned.record.id;
  result.images = scanned.record.images;
  result.reference = turns.back().text;
  turns.pop_back();
  result.question = turns.back().text;
  result.fault = scanned.reason;
  if (scanned.defect != Defect::kNone) return result;
  try {
    std::vector<at::Tensor> pictures;
    pictures.reserve(files.size());
    for (const std::string& bytes : files) {
      pictures.push_back(DecodeImage(bytes, responder.image_limits()));
    }
    GenerateOptions options;
    options.max_new_tokens = max_new_tokens;
    result.answer = responder.Answer(turns, pictures, options);
    result.exact = result.answer == result.reference;
  } catch (const ImageError& error) {
    result.fault = error.what();
  }
  return result;
}

}  // namespace

std::vector<int64_t> AnswerableSamples(const CostIndex& index, int64_t most) {
  std::vector<int64_t> samples;
  for (int64_t s = 0; s < index.size() && std::ssize(samples) < most; ++s) {
    const Defect defect = index[s].defect;
    if (defect == Defect::kNone || IsImageDefect(defect)) samples.push_back(s);
  }
  return samples;
}

std::optional<std::vector<SampleAnswer>> AnswerSamples(const Responder& responder,
                                                       const Questions& questions,
                                                       Communicator& world,
                                                       const std::function<bool()>& stop) {
  const std::vector<int64_t>& samples = questions.samples;
  Json local = Json::array();
  const auto ranks = static_cast<size_t>(world.size());
  // Every rank takes part in every round, without a sample in the last one perhaps: `stop` is
  // collective.
  for (size_t first = 0, round = 1; first < samples.size(); first += ranks, ++round) {
    const size_t i = first + static_cast<size_t>(world.rank());
    const auto answer = i < samples.size() ? AnswerOne(responder, questions.dataset, samples[i],
                                                       questions.max_new_tokens)
                                           : std::nullopt;
    if (answer) local.push_back(ToJson(*answer));
    if (stop && round % kAnswersBetweenStops == 0 && stop()) return std::nullopt;
  }
  std::map<int64_t, SampleAnswer> by_sample;
  const std::string text = local.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (const std::string& part : GatherText(world, text)) {
    for (const Json& json : Json::parse(part)) {
      SampleAnswer answer = FromJson(json);
      by_sample[answer.sample] = std::move(answer);
    }
  }
  std::vector<SampleAnswer> answers;
  for (int64_t sample : samples) {
    const auto found = by_sample.find(sample);
    if (found != by_sample.end()) answers.push_back(found->second);
  }
  return answers;
}

int64_t AnsweredSource::exact() const {
  return std::count_if(answers.begin(), answers.end(), [](const auto& a) { return a.exact; });
}

int64_t AnsweredSource::faults() const {
  return std::count_if(answers.begin(), answers.end(),
                       [](const auto& a) { return !a.fault.empty(); });
}

double AnsweredSource::exact_share() const {
  return answers.empty() ? 0 : static_cast<double>(exact()) / static_cast<double>(answers.size());
}

}  // namespace equipoise
