#pragma once

#include <string>
#include <vector>

#include "data/text/conversation.h"
#include "trainer/answers/answer.h"
#include "trainer/answers/question_file.h"
#include "trainer/commands/asked_model.h"

namespace equipoise {

// A question of a command line.
struct PromptQuestion {
  std::string text;
  std::vector<std::string> images;  // paths
  // Paths of files, or of folders of frames, or of frames with commas between them.
  std::vector<std::string> videos;
  double fps = 0;  // of the videos; 0: not known
};

// It as a record, of which no file is opened. Throws ConfigError.
Record RecordOf(const PromptQuestion& question);

// A list of that question alone, its files read. Throws ConfigError, DataError. `model` must
// outlive it.
QuestionList ListOf(const PromptQuestion& question, const AskedModel& model);

// The questions of a file, whose objects it puts in their places; `folder`: of their pictures. One
// that cannot be asked has a fault. `questions` and `model` must outlive it.
QuestionList ListOf(std::vector<FileQuestion>& questions, const std::string& folder,
                    const AskedModel& model);

}  // namespace equipoise
