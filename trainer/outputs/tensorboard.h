#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "configs/base/file_handle.h"

namespace equipoise {

// Writes scalars as a TensorBoard event file (TFRecords of Event messages), without any library.
// Not thread-safe.
class TensorBoardWriter {
 public:
  // Opens a new file in `folder`, which exists. `first_step` is the first that will be written:
  // what earlier files of the folder hold from there on is no longer shown. Throws RunError.
  TensorBoardWriter(const std::string& folder, int64_t first_step);

  void AddScalar(std::string_view tag, int64_t step, double value);
  // Hands what was added to the system. Throws RunError when the disk is full.
  void Flush();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string pending_;
  FileHandle file_;
};

// CRC-32C (Castagnoli).
uint32_t Crc32c(std::string_view bytes);

}  // namespace equipoise
