#include "configs/base/file_handle.h"

#include <unistd.h>

#include <cerrno>

namespace equipoise {
namespace {

// Calls `part(done)`, which transfers some of `bytes` from there on, until all are done, one call
// transfers nothing, or one fails.
template <class Part>
ssize_t InParts(size_t bytes, const Part& part) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t now = part(done);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return -1;
    if (now == 0) break;
    done += static_cast<size_t>(now);
  }
  return static_cast<ssize_t>(done);
}

}  // namespace

FileHandle::~FileHandle() {
  if (fd_ >= 0) close(fd_);
}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.fd_;
    other.fd_ = -1;
  }
  return *this;
}

bool FileHandle::Close() {
  const int fd = fd_;
  fd_ = -1;
  return close(fd) == 0;
}

ssize_t ReadFully(const FileHandle& file, void* target, size_t bytes) {
  return InParts(bytes, [&](size_t done) {
    return read(file.get(), static_cast<char*>(target) + done, bytes - done);
  });
}

ssize_t ReadFullyAt(const FileHandle& file, void* target, size_t bytes, int64_t offset) {
  return InParts(bytes, [&](size_t done) {
    return pread(file.get(), static_cast<char*>(target) + done, bytes - done,
                 offset + static_cast<int64_t>(done));
  });
}

bool WriteFully(const FileHandle& file, std::string_view bytes) {
  const ssize_t done = InParts(bytes.size(), [&](size_t at) {
    return write(file.get(), bytes.data() + at, bytes.size() - at);
  });
  if (done == static_cast<ssize_t>(bytes.size())) return true;
  if (done >= 0) errno = ENOSPC;
  return false;
}

}  // namespace equipoise
