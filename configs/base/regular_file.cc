#include "configs/base/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace equipoise {

OpenedFile OpenRegularFile(const std::string& path) {
  OpenedFile opened;
  // O_NONBLOCK: opening a pipe without a writer returns at once.
  opened.file = FileHandle(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!opened.file.valid()) {
    opened.problem = fmt::format("cannot be opened: {}", std::strerror(errno));
    return opened;
  }
  struct stat info {};
  if (fstat(opened.file.get(), &info) != 0) {
    opened.problem = fmt::format("cannot be read: {}", std::strerror(errno));
  } else if (S_ISDIR(info.st_mode)) {
    opened.problem = "is a folder";
  } else if (!S_ISREG(info.st_mode)) {
    opened.problem = "is not a regular file";
  }
  if (!opened.problem.empty()) opened.file = FileHandle();
  opened.bytes = info.st_size;
  opened.mtime_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  opened.inode = info.st_ino;
  return opened;
}

FileText ReadRegularFile(const std::string& path, size_t most_bytes) {
  const OpenedFile opened = OpenRegularFile(path);
  if (!opened.problem.empty()) return {"", opened.problem};
  const auto refuse_size = [&] {
    return FileText{
        "", fmt::format("larger than the limit of {} bytes; is this the right file?", most_bytes)};
  };
  const auto size = static_cast<size_t>(opened.bytes);
  if (size > most_bytes) return refuse_size();
  // Reads to the end: files of /proc have size 0, and others grow.
  std::string text(size + 4096, '\0');
  for (size_t have = 0;;) {
    const ssize_t got = ReadFully(opened.file, text.data() + have, text.size() - have);
    if (got < 0) return {"", fmt::format("cannot be read: {}", std::strerror(errno))};
    have += static_cast<size_t>(got);
    if (have > most_bytes) return refuse_size();
    if (have < text.size()) {
      text.resize(have);
      return {std::move(text), ""};
    }
    text.resize(have * 2);
  }
}

}  // namespace equipoise
