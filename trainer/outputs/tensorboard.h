#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "configs/base/file_handle.h"

namespace equipoise {

// Writes scalars to a TensorBoard event file (TFRecords of tensorflow.Event protobufs), without a
// library. Not thread-safe.
class TensorBoardWriter {
 public:
  // Opens a new file in `folder`, which must exist. `first_step` is the first step that will be
  // written: TensorBoard then drops the values of that step and later ones in earlier files. Throws
  // RunError.
  TensorBoardWriter(const std::string& folder, int64_t first_step);

  void AddScalar(std::string_view tag, int64_t step, double value);
  // Writes the scalars that were added. Throws RunError when the disk is full.
  void Flush();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string pending_;
  FileHandle file_;
};

// The CRC-32C (Castagnoli) checksum.
uint32_t Crc32c(std::string_view bytes);

}  // namespace equipoise
