#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace equipoise {

// A file descriptor that closes itself.
class FileHandle {
 public:
  explicit FileHandle(int fd = -1) : fd_(fd) {}
  ~FileHandle();
  FileHandle(FileHandle&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileHandle& operator=(FileHandle&& other) noexcept;
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_;
};

// A regular file opened for reading, or why it is not.
struct OpenedFile {
  FileHandle file;
  int64_t bytes = 0;
  int64_t mtime_ns = 0;
  uint64_t inode = 0;
  std::string problem;  // such as "cannot be opened: No such file or directory"; empty when open
};

// Opens what a user or a data set names. Folders, pipes and devices are refused and never waited
// for. Symbolic links are followed.
OpenedFile OpenRegularFile(const std::string& path);

// The text of a regular file of at most `most_bytes`; `problem` as above.
struct FileText {
  std::string text;
  std::string problem;
};
FileText ReadRegularFile(const std::string& path, size_t most_bytes);

}  // namespace equipoise
