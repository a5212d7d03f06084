#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/records/record.h"

namespace equipoise {

// A Parquet file, read through libequipoise_parquet.so (parquet_api.h), which is looked for beside
// the program. Its records have no place in its bytes: to the cost index row i stands at
// i * stride(). Thread-safe.
class ParquetFile {
 public:
  // Throws DataError when the file is damaged or empty, or the library is absent.
  explicit ParquetFile(const std::string& path, int64_t bytes);
  ~ParquetFile();
  ParquetFile(const ParquetFile&) = delete;
  ParquetFile& operator=(const ParquetFile&) = delete;

  int64_t rows() const { return rows_; }
  int64_t stride() const { return stride_; }
  // The row's text, for ParseParquetRecord(). Throws DataError. Neighbouring rows are read in one
  // piece, their row group; rows far apart cost one each.
  std::string Row(int64_t row) const;

 private:
  struct Library;
  std::string path_;
  std::unique_ptr<Library> library_;
  void* file_ = nullptr;
  int64_t rows_ = 0, stride_ = 1;
};

// The text of a row, a record's; its pictures, which stand behind it, become `record.given`. Throws
// Refusal.
std::string_view TextOfRow(std::string_view row, Record& record);

// Parses a row: a record as ParseRecord() takes it, its pictures behind it. Never throws.
ParsedRecord ParseParquetRecord(std::string_view row, const RecordKeys& keys = {});

}  // namespace equipoise
