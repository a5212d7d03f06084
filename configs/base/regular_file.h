#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "configs/base/file_handle.h"

namespace equipoise {

// A regular file opened for reading, or the reason why it cannot be.
struct OpenedFile {
  FileHandle file;
  int64_t bytes = 0;
  int64_t mtime_ns = 0;
  uint64_t inode = 0;
  std::string problem;  // such as "cannot be opened: No such file or directory"; empty when open
};

// Opens a file that a user or a data set names. Folders, pipes and devices are refused, and never
// blocked on. Follows symbolic links.
OpenedFile OpenRegularFile(const std::string& path);

// The text of a file, or the reason why it cannot be read.
struct FileText {
  std::string text;
  std::string problem;  // as in OpenedFile
};
// Reads a regular file of at most `most_bytes` bytes.
FileText ReadRegularFile(const std::string& path, size_t most_bytes);

}  // namespace equipoise
