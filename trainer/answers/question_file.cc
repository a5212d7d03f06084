#include "trainer/answers/question_file.h"

#include <fmt/format.h>

#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>

#include "configs/base/error.h"
#include "data/records/annotation_file.h"
#include "data/records/parquet_file.h"
#include "data/records/record_forms.h"
#include "data/records/record_objects.h"
#include "data/records/refusal.h"

namespace equipoise {
namespace {

constexpr int64_t kLongestRecord = 64 << 20;

// The text of the first of these keys that the record has; null where it has none.
const Json* FindText(const Json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) continue;
    if (!found->is_string() && !found->is_number())
      Refuse(Defect::kBadField, fmt::format("'{}' is no text", key));
    return &*found;
  }
  return nullptr;
}

std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void ReadReferences(const Json& object, std::initializer_list<const char*> keys,
                    FileQuestion& question) {
  for (const char* key : keys) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) continue;
    if (!found->is_array()) {
      question.references.push_back(TextOf(*FindText(object, {key})));
      continue;
    }
    for (const Json& one : *found) {
      if (!one.is_string() && !one.is_number())
        Refuse(Defect::kBadField, fmt::format("an item of '{}' is no text", key));
      question.references.push_back(TextOf(one));
    }
  }
}

// A question without a form of a conversation is read as a record with its first reference, if it
// has one: so it may have all that a record has.
void ReadAlone(std::string_view text, const std::string& asked, FileQuestion& question) {
  auto whole = nlohmann::ordered_json::parse(text);  // the order of functions' keys counts
  // An id may be anything here.
  for (const char* key : {"id", "reasoning_content"}) whole.erase(key);
  whole["query"] = asked;
  whole["response"] = question.references.empty() ? "" : question.references[0];
  ReadConversation(whole.dump(), question.record);
  question.record.turns.pop_back();
}

// `text`: of a record, or a row of Parquet.
FileQuestion Parse(std::string_view text, AnnotationForm form) {
  FileQuestion question;
  if (form == AnnotationForm::kParquet) text = TextOfRow(text, question.record);
  const Json object = ParseJson(text, "record");
  if (!object.is_object()) Refuse(Defect::kBadField, "it is no object");
  std::vector<Turn>& turns = question.record.turns;
  if (HasConversation(text)) {
    ReadConversation(text, question.record);
    if (!turns.empty() && turns.back().role == Role::kAssistant) {
      question.references = {turns.back().text};
      turns.pop_back();
    }
    if (turns.empty() || turns.back().role != Role::kUser)
      Refuse(Defect::kNoConversation, "it does not end with a question and perhaps its answer");
    ReadReferences(object, {"answers", "answer"}, question);
  } else {
    const Json* asked = FindText(object, {"question", "text", "prompt", "query"});
    if (asked == nullptr)
      Refuse(Defect::kBadField, "there is no question: give 'question', or a conversation");
    ReadReferences(object, {"response", "answers", "answer"}, question);
    ReadAlone(text, TextOf(*asked), question);
  }
  question.record.given.clear();
  for (const char* key : {"question_id", "id"}) {
    if (question.id.is_null() && object.contains(key)) question.id = object[key];
  }
  return question;
}

// Zeros for a question that could not be asked, whatever its references.
AnswerScores ScoresOf(const FileQuestion& question, const GivenAnswer& answer) {
  const AnswerScores scores = ScoreAnswer(question.question(), question.references, answer.text);
  return answer.fault.empty() ? scores : scores.OfNone();
}

Json AnswerJson(const FileQuestion& question, const GivenAnswer& answer) {
  Json json = {{"id", question.id},
               {"images", question.record.images},
               {"question", question.question()},
               {"answer", answer.text}};
  if (!answer.fault.empty()) json["fault"] = answer.fault;
  if (answer.cut) json["cut"] = true;
  if (question.references.empty()) return json;
  json["references"] = question.references;
  const AnswerScores scores = ScoresOf(question, answer);
  AnswerScores::VisitFields(scores, [&](const char* name, const auto& value) {
    if (const std::optional<double> known = value) json[name] = *known;
  });
  return json;
}

}  // namespace

std::vector<FileQuestion> ReadQuestions(const std::string& path) {
  const AnnotationFile file(path);
  if (file.form() == AnnotationForm::kShard)
    throw DataError(path + ": is a shard; give a JSONL file of questions");
  const auto reader = file.Read(0, std::numeric_limits<int64_t>::max(), kLongestRecord);
  std::vector<FileQuestion> questions;
  for (Line line; reader->Next(line);) {
    const auto fail = [&](const std::string& what) {
      throw DataError(fmt::format("{}:{}: {}; mend it or leave it out", path, line.number, what));
    };
    if (line.too_long) fail("the record is too long");
    try {
      questions.push_back(Parse(line.text, file.form()));
    } catch (const Refusal& refusal) {
      fail(refusal.reason);
    } catch (const DataError& error) {
      fail(error.what());
    }
    if (questions.back().id.is_null()) questions.back().id = std::ssize(questions) - 1;
  }
  if (questions.empty()) throw DataError(path + ": holds no questions");
  return questions;
}

void WriteObjects(const ImageProcessor& processor, const std::vector<ImageSize>& sizes,
                  FileQuestion& question) {
  Record record = question.record;
  if (!question.references.empty())
    record.turns.push_back({Role::kAssistant, question.references[0]});
  WriteObjects(processor, sizes, record);
  if (!question.references.empty()) {
    question.references[0] = record.turns.back().text;
    record.turns.pop_back();
  }
  question.record = std::move(record);
}

std::string AnswerLines(const std::vector<FileQuestion>& questions,
                        const std::vector<GivenAnswer>& answers) {
  std::string lines;
  for (size_t i = 0; i < questions.size(); ++i) {
    const Json json = AnswerJson(questions[i], answers[i]);
    lines += json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  return lines;
}

std::optional<AnswerScores> MeanScores(const std::vector<FileQuestion>& questions,
                                       const std::vector<GivenAnswer>& answers) {
  std::vector<AnswerScores> all;
  for (size_t i = 0; i < questions.size(); ++i) {
    if (questions[i].references.empty()) continue;
    all.push_back(ScoresOf(questions[i], answers[i]));
  }
  if (all.empty()) return std::nullopt;
  return MeanOf(all);
}

}  // namespace equipoise
