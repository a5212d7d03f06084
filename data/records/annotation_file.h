#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "data/records/line_reader.h"
#include "data/records/parquet_file.h"
#include "data/records/record.h"
#include "data/records/record_reader.h"
#include "data/settings/data_config.h"

namespace equipoise {

// How the records lie in a file.
enum class AnnotationForm {
  kLines,    // JSONL: one object a line
  kArray,    // a JSON array of objects
  kShard,    // a WebDataset shard: a tar archive (shard.h)
  kParquet,  // rows of a Parquet file (parquet_file.h)
};

// True for the name of a shard or of a Parquet file: the name decides, so that a record's own bytes
// never do.
bool IsShardName(const std::string& path);
bool IsParquetName(const std::string& path);

// Parses a record as it lies in the source's file. Never throws.
ParsedRecord ParseRecordIn(const SourceConfig& source, std::string_view text);

// A file of records, in the form that its name or first bytes show. A record is a range of bytes,
// found without a whole file in memory. Thread-safe.
class AnnotationFile {
 public:
  // Throws DataError that names what the file is instead, and what to do: compressed files,
  // Arrow, files without a record.
  explicit AnnotationFile(const std::string& path);

  const TextFile& file() const { return file_; }
  AnnotationForm form() const { return form_; }
  // The records that begin in [begin, end); of those above `longest` bytes, the place alone. This
  // object must outlive the reader. An array or a shard is scanned whole at the first call, which
  // throws DataError where its structure is damaged.
  std::unique_ptr<RecordReader> Read(int64_t begin, int64_t end, int64_t longest) const;
  // The text of the record that such a reader found at `offset`; of one above `longest` bytes as
  // much as shows that, but of Parquet the whole row. Throws DataError.
  std::string Record(uint64_t offset, uint64_t bytes, int64_t longest) const;

 private:
  // Found at first use, by whichever thread needs them.
  struct Extents {
    std::once_flag once;
    std::vector<RecordExtent> list;
  };

  TextFile file_;
  AnnotationForm form_ = AnnotationForm::kLines;
  std::unique_ptr<Extents> extents_ = std::make_unique<Extents>();
  std::unique_ptr<ParquetFile> parquet_;  // of that form alone
};

}  // namespace equipoise
