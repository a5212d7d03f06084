#pragma once

#include <string>

#include "data/defect.h"

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

// A picture's file opened for reading, or why not (kImageMissing, kImageOutside, kImageUnreadable).
struct OpenedImage {
  FileHandle file;
  int64_t bytes = 0;
  Defect defect = Defect::kNone;
  std::string reason;
};

// The folder that a source's image paths are relative to. Paths come from untrusted records:
// nothing outside the folder is ever opened, be it by `..`, an absolute path, a URL or a symbolic
// link that leaves it, and only regular files are. Thread-safe.
class ImageFolder {
 public:
  // Throws DataError when there is no such folder.
  explicit ImageFolder(const std::string& path);
  OpenedImage Open(const std::string& relative) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  FileHandle folder_;
};

}  // namespace equipoise
