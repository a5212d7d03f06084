#include "trainer/answers/answer_role.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "data/records/annotation_file.h"

namespace equipoise {
namespace {

constexpr int64_t kMostRecords = 300'000;  // takes a few seconds to read
constexpr int64_t kLongestRecord = 64 << 20;

bool Contains(const std::vector<SourceConfig>& sources, const std::string& annotations) {
  return std::any_of(sources.begin(), sources.end(),
                     [&](const SourceConfig& source) { return source.annotations == annotations; });
}

// Paths of the pictures, and the question about them.
using QuestionKey = std::pair<std::vector<std::string>, std::string>;

// That the names of pictures belong to; a shard's are its own, and begin anew in the next.
const std::string& FolderOf(const SourceConfig& source) {
  return IsShardName(source.annotations) ? source.annotations : source.images;
}

QuestionKey KeyOf(const std::string& folder, const std::vector<std::string>& images,
                  const std::string& question) {
  QuestionKey key{{}, question};
  for (const std::string& image : images) key.first.push_back(fmt::format("{}/{}", folder, image));
  return key;
}

// Sets the training data's answers to the questions that are the keys; others stay empty.
void FindTrained(const std::vector<SourceConfig>& train,
                 std::map<QuestionKey, std::string>& answers) {
  int64_t records = 0;
  for (const SourceConfig& source : train) {
    if (!std::filesystem::exists(source.annotations)) continue;
    const AnnotationFile file(source.annotations);
    const auto reader = file.Read(0, file.file().bytes, kLongestRecord);
    for (Line line; records < kMostRecords && reader->Next(line); ++records) {
      const ParsedRecord parsed = ParseRecordIn(source, line.text);
      const std::vector<Turn>& turns = parsed.record.turns;
      if (parsed.defect != Defect::kNone || turns.size() < 2) continue;
      const auto found =
          answers.find(KeyOf(FolderOf(source), parsed.record.images, turns[turns.size() - 2].text));
      if (found != answers.end()) found->second = turns.back().text;
    }
  }
}

}  // namespace

std::vector<AnswerRole> AnswerRoles(const std::vector<AnsweredSource>& sources,
                                    const std::vector<SourceConfig>& train,
                                    const std::vector<SourceConfig>& eval) {
  std::map<QuestionKey, std::string> trained;
  for (const AnsweredSource& source : sources) {
    if (Contains(train, source.source.annotations) || Contains(eval, source.source.annotations))
      continue;
    for (const SampleAnswer& a : source.answers) {
      trained[KeyOf(FolderOf(source.source), a.images, a.question)];
    }
  }
  if (!trained.empty()) FindTrained(train, trained);
  const auto is_control = [&](const AnsweredSource& source) {
    const auto others =
        std::count_if(source.answers.begin(), source.answers.end(), [&](const SampleAnswer& a) {
          const std::string& answer = trained[KeyOf(FolderOf(source.source), a.images, a.question)];
          return !answer.empty() && answer != a.reference;
        });
    return 2 * static_cast<size_t>(others) > source.answers.size();
  };
  std::vector<AnswerRole> roles;
  for (const AnsweredSource& source : sources) {
    const std::string& name = source.source.annotations;
    roles.push_back(Contains(train, name)  ? AnswerRole::kTrained
                    : Contains(eval, name) ? AnswerRole::kHeldOut
                    : is_control(source)   ? AnswerRole::kControl
                                           : AnswerRole::kOther);
  }
  return roles;
}

}  // namespace equipoise
