#include "trainer/answers/answer_files.h"

#include <fstream>
#include <optional>

#include "configs/base/json.h"
#include "trainer/common/durable_file.h"

namespace equipoise {

void WriteAnswers(const std::string& path, const std::vector<AnsweredSource>& sources,
                  const AnswersBefore& before) {
  std::string lines;
  for (const AnsweredSource& source : sources) {
    for (const SampleAnswer& a : source.answers) {
      Json json = {{"source", source.source.annotations},
                   {"sample", a.sample},
                   {"id", a.id},
                   {"images", a.images},
                   {"question", a.question},
                   {"reference", a.reference},
                   {"answer", a.answer}};
      AnswerScores::VisitFields(a.scores, [&](const char* name, const auto& value) {
        if (const std::optional<double> known = value) json[name] = *known;
      });
      json["exact"] = a.exact();
      if (!a.fault.empty()) json["fault"] = a.fault;
      const auto found = before.find({source.source.annotations, a.sample});
      if (found != before.end()) json["before"] = found->second;
      lines += json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    }
  }
  WriteFileDurably(path, lines);
}

AnswersBefore ReadAnswers(const std::string& path) {
  AnswersBefore answers;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("source") || !json.contains("sample")) continue;
    answers[{json["source"].get<std::string>(), json["sample"].get<int64_t>()}] =
        json.value("answer", "");
  }
  return answers;
}

}  // namespace equipoise
