#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "data/records/bad_sample.h"
#include "data/records/path_guard.h"

namespace equipoise {

// RUN/quarantine.jsonl: one object a line for each record that could not be used,
//   {"sample", "file", "line", "id", "reason", "step" (absent: found while indexing), "rank"}
// Each record (file, line) stands there once, whichever ranks and runs meet it: ranks append to the
// same file under a lock.
class Quarantine {
 public:
  // Throws RunError when the file cannot be opened.
  explicit Quarantine(const std::string& path);
  // True when the record was not there yet. Throws RunError when it cannot be written.
  bool Add(const BadSample& bad, std::optional<int64_t> step, int rank);
  // Records in the file, as far as this object has seen.
  int64_t size() const { return static_cast<int64_t>(known_.size()); }

 private:
  void ReadNew();

  std::string path_;
  FileHandle file_;
  int64_t read_ = 0;                                 // bytes of the file already known
  std::set<std::pair<std::string, int64_t>> known_;  // file, line
};

}  // namespace equipoise
