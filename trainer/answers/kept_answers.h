#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/answers/answer.h"

namespace equipoise {

// A hash of the names, sizes and times of a folder's files of a model. Throws RunError.
uint64_t FolderStamp(const std::string& folder);

// The answers so far, in a file that outlives the program: the same command goes on from them. Of
// one process.
class KeptAnswers {
 public:
  // Takes those that `path` has, where they are of the same command; else the file begins anew.
  // `command` is a hash of all that the answers depend on. A last line that is cut, or that has an
  // answer to none of the `questions`, is dropped. Throws RunError.
  KeptAnswers(std::string path, uint64_t command, int64_t questions);

  // Those that the file had.
  const std::vector<NumberedAnswer>& taken() const { return taken_; }
  // Appends some. Throws RunError.
  void Add(const std::vector<NumberedAnswer>& answers);
  // Removes the file, once all answers are written elsewhere.
  void Remove();

 private:
  std::string path_;
  std::vector<NumberedAnswer> taken_;
};

}  // namespace equipoise
