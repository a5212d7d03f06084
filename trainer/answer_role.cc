#include "trainer/answer_role.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace equipoise {
namespace {

bool Holds(const std::vector<SourceConfig>& sources, const std::string& annotations) {
  return std::any_of(sources.begin(), sources.end(), [&](const SourceConfig& source) {
    return source.annotations == annotations;
  });
}

// Pictures, by folder and name, and the question about them.
using Asked = std::pair<std::vector<std::string>, std::string>;

Asked AskedIn(const SourceConfig& source, const SampleAnswer& answer) {
  Asked asked{{}, answer.question};
  for (const std::string& image : answer.images) asked.first.push_back(source.images + "/" + image);
  return asked;
}

}  // namespace

std::vector<AnswerRole> AnswerRoles(const std::vector<AnsweredSource>& sources,
                                    const std::vector<SourceConfig>& train,
                                    const std::vector<SourceConfig>& eval) {
  std::map<Asked, std::string> trained;
  for (const AnsweredSource& source : sources) {
    if (!Holds(train, source.source.annotations)) continue;
    for (const SampleAnswer& a : source.answers) trained[AskedIn(source.source, a)] = a.reference;
  }
  const auto is_control = [&](const AnsweredSource& source) {
    const auto others = std::count_if(
        source.answers.begin(), source.answers.end(), [&](const SampleAnswer& answer) {
          const auto found = trained.find(AskedIn(source.source, answer));
          return found != trained.end() && found->second != answer.reference;
        });
    return 2 * static_cast<size_t>(others) > source.answers.size();
  };
  std::vector<AnswerRole> roles;
  for (const AnsweredSource& source : sources) {
    const std::string& name = source.source.annotations;
    roles.push_back(Holds(train, name)   ? AnswerRole::kTrained
                    : Holds(eval, name)  ? AnswerRole::kHeldOut
                    : is_control(source) ? AnswerRole::kControl
                                         : AnswerRole::kOther);
  }
  return roles;
}

}  // namespace equipoise
