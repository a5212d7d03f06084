#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "configs/base/file_handle.h"
#include "data/records/bad_sample.h"

namespace equipoise {

// RUN/quarantine.jsonl: one object a line for each record that could not be used,
//   {"sample", "file", "line", "id", "reason", "step" (absent: found while indexing), "rank"}
// Each record (file, line) is listed once, whichever ranks and runs find it: ranks append to the
// same file under a lock.
class Quarantine {
 public:
  // Throws RunError when the file cannot be opened.
  explicit Quarantine(const std::string& path);
  // Adds a record; false when it was listed already. Throws RunError when it cannot be written.
  bool Add(const BadSample& bad, std::optional<int64_t> step, int rank);
  // Whether the record was listed when this object last read the file.
  bool Has(const BadSample& bad) const { return known_.contains({bad.file, bad.line}); }
  // Records in the file when this object last read it.
  int64_t size() const { return static_cast<int64_t>(known_.size()); }

 private:
  // Reads the lines that other ranks have added. REQUIRES: the file is locked.
  void ReadNew();

  std::string path_;
  FileHandle file_;
  int64_t read_ = 0;                                 // bytes of the file read so far
  std::set<std::pair<std::string, int64_t>> known_;  // file, line
};

}  // namespace equipoise
