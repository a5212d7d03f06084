#include "trainer/common/durable_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "configs/base/error.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void Fail(const std::string& path, const std::string& action, int error) {
  std::string advice;
  if (error == ENOSPC || error == EDQUOT) advice = "; free some space and resume";
  if (error == EACCES || error == EROFS) advice = "; choose a folder that can be written to";
  throw RunError(path + ": cannot " + action + ": " + std::strerror(error) + advice);
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags)
      : path_(path), fd_(open(path.c_str(), flags, 0644)) {
    if (fd_ < 0) Fail(path, "open", errno);
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void WriteAll(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = write(fd_, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) Fail(path_, "write", errno);
      text.remove_prefix(static_cast<size_t>(n));
    }
  }

  // Bytes read; 0 at the end of the file.
  size_t Read(char* buffer, size_t bytes) {
    for (;;) {
      const ssize_t n = read(fd_, buffer, bytes);
      if (n >= 0) return static_cast<size_t>(n);
      if (errno != EINTR) Fail(path_, "read", errno);
    }
  }

  void Sync() {
    if (fsync(fd_) != 0) Fail(path_, "sync", errno);
  }

  // Closes with its own check: some file systems report a full disk only here.
  void Close() {
    const int fd = fd_;
    fd_ = -1;
    if (close(fd) != 0) Fail(path_, "close", errno);
  }

 private:
  std::string path_;
  int fd_;
};

std::string ParentOf(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

void Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) Fail(to, "rename " + from + " to it", errno);
}

void RemoveTree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) Fail(path, "remove", error.value());
}

}  // namespace

void WriteAndSync(const std::string& path, std::string_view text) {
  Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
  file.WriteAll(text);
  file.Sync();
  file.Close();
}

void WriteFileDurably(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  WriteAndSync(temporary, text);
  Rename(temporary, path);
  SyncFolder(ParentOf(path));
}

void SyncFolder(const std::string& folder) {
  Descriptor entry(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  entry.Sync();
}

void ReplaceLink(const std::string& path, const std::string& target) {
  const std::string temporary = path + ".tmp";
  if (unlink(temporary.c_str()) != 0 && errno != ENOENT) Fail(temporary, "remove", errno);
  if (symlink(target.c_str(), temporary.c_str()) != 0) Fail(temporary, "create", errno);
  Rename(temporary, path);
  SyncFolder(ParentOf(path));
}

void ReplaceFolder(const std::string& from, const std::string& to) {
  const std::string parent = ParentOf(to);
  if (!fs::exists(fs::symlink_status(to))) {
    Rename(from, to);
    SyncFolder(parent);
    return;
  }
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) Fail(to, "exchange " + from + " with it", errno);
    const std::string aside =
        from + ".old";  // no exchange here (NFS): for a moment there is neither
    Rename(to, aside);
    Rename(from, to);
    Rename(aside, from);
  }
  SyncFolder(parent);
  RemoveTree(from);
}

FileSum SumFile(const std::string& path) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  Descriptor file(path, O_RDONLY | O_CLOEXEC);
  std::vector<char> buffer(size_t{1} << 20);
  FileSum sum;
  while (const size_t n = file.Read(buffer.data(), buffer.size())) {
    XXH3_64bits_update(state.get(), buffer.data(), n);
    sum.bytes += static_cast<int64_t>(n);
  }
  sum.xxh3 = XXH3_64bits_digest(state.get());
  return sum;
}

std::string HexDigits(uint64_t value) {
  std::array<char, 17> digits{};
  snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(value));
  return digits.data();
}

}  // namespace equipoise
