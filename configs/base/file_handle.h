#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace equipoise {

// The owner of a file descriptor, which it closes. Moves only.
class FileHandle {
 public:
  explicit FileHandle(int fd = -1) : fd_(fd) {}
  ~FileHandle();
  FileHandle(FileHandle&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileHandle& operator=(FileHandle&& other) noexcept;
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Closes now; false, with errno, where the file system reports a failed write only here.
  bool Close();

 private:
  int fd_;
};

// Reads and writes that go on after a signal and after a part. On failure they return -1 or false,
// with errno.

// Bytes read from the current position, or from `offset`: `bytes`, fewer only at the end of file.
ssize_t ReadFully(const FileHandle& file, void* target, size_t bytes);
ssize_t ReadFullyAt(const FileHandle& file, void* target, size_t bytes, int64_t offset);
// Writes all of `bytes`, in one write where the file takes them at once.
bool WriteFully(const FileHandle& file, std::string_view bytes);

}  // namespace equipoise
