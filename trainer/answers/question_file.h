#pragma once

#include <optional>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "data/images/image_processor.h"
#include "data/text/conversation.h"
#include "trainer/answers/answer.h"
#include "trainer/answers/answer_scores.h"

namespace equipoise {

// A question of a file.
struct FileQuestion {
  Json id;                              // "question_id" or "id" as it is written, else its number
  Record record;                        // its turns end with the question
  std::vector<std::string> references;  // known answers; may be empty
  const std::string& question() const { return record.turns.back().text; }
};

// Reads the questions of a JSONL file, a JSON array or a Parquet file. A record is a conversation
// of the forms of data/records/record_forms.h, with or without its last answer, or has a
// "question", "text", "prompt" or "query", perhaps a "system" or "system_prompt", pictures in
// "image" or "images", videos in "video" or "videos", and perhaps an "answer", "answers" or
// "response", a text or a list of them. Throws DataError "path:number: what; what to do".
std::vector<FileQuestion> ReadQuestions(const std::string& path);

// Puts the names and boxes of the record's objects in the places that the question and its answer,
// the first reference, have for them (data/records/record_objects.h). `sizes`: of its pictures.
// Throws Refusal, ImageError.
void WriteObjects(const ImageProcessor& processor, const std::vector<ImageSize>& sizes,
                  FileQuestion& question);

// The file of answers, a JSON object a line: id, images, question, answer, `fault` where there is
// none, `cut` where it is as long as it may be, and where references are known these and the
// AnswerScores.
std::string AnswerLines(const std::vector<FileQuestion>& questions,
                        const std::vector<GivenAnswer>& answers);

// Means of the scores of the questions with references; nothing where there are none.
std::optional<AnswerScores> MeanScores(const std::vector<FileQuestion>& questions,
                                       const std::vector<GivenAnswer>& answers);

}  // namespace equipoise
