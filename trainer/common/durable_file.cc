#include "trainer/common/durable_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/file_handle.h"
#include "configs/base/write_advice.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void Fail(const std::string& path, const std::string& action, int error) {
  throw RunError(
      fmt::format("{}: cannot {}: {}{}", path, action, std::strerror(error), WriteAdvice(error)));
}

FileHandle Open(const std::string& path, int flags) {
  FileHandle file(open(path.c_str(), flags, 0644));
  if (!file.valid()) Fail(path, "open", errno);
  return file;
}

void Sync(const FileHandle& file, const std::string& path) {
  if (fsync(file.get()) != 0) Fail(path, "sync", errno);
}

std::string ParentOf(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

void Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) == 0) return;
  const int error = errno;
  Fail(to, fmt::format("rename {} to it", from), error);
}

void RemoveTree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) Fail(path, "remove", error.value());
}

}  // namespace

void WriteAndSync(const std::string& path, std::string_view text) {
  FileHandle file = Open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
  if (!WriteFully(file, text)) Fail(path, "write", errno);
  Sync(file, path);
  if (!file.Close()) Fail(path, "close", errno);
}

void WriteFileDurably(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  WriteAndSync(temporary, text);
  Rename(temporary, path);
  SyncFolder(ParentOf(path));
}

void SyncFolder(const std::string& folder) {
  Sync(Open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), folder);
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
    const int error = errno;
    if (error != EINVAL && error != ENOSYS)
      Fail(to, fmt::format("exchange {} with it", from), error);
    // The file system cannot exchange names (NFS): for a moment there is no folder `to`.
    const std::string old = from + kAsideSuffix;
    Rename(to, old);
    Rename(from, to);
    Rename(old, from);
  }
  SyncFolder(parent);
  RemoveTree(from);
}

FileSum SumFile(const std::string& path) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  const FileHandle file = Open(path, O_RDONLY | O_CLOEXEC);
  std::vector<char> buffer(size_t{1} << 20);
  FileSum sum;
  while (const ssize_t n = ReadFully(file, buffer.data(), buffer.size())) {
    if (n < 0) Fail(path, "read", errno);
    XXH3_64bits_update(state.get(), buffer.data(), static_cast<size_t>(n));
    sum.bytes += n;
  }
  sum.xxh3 = XXH3_64bits_digest(state.get());
  return sum;
}

std::string HexDigits(uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace equipoise
