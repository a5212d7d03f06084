#include "data/records/quarantine.h"

#include <fcntl.h>
#include <sys/file.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "configs/base/error.h"
#include "configs/base/json.h"

namespace equipoise {
namespace {

// Lock of the file, held while it is read and appended to.
class FileLock {
 public:
  explicit FileLock(int fd) : fd_(fd) {
    while (flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FileLock() { flock(fd_, LOCK_UN); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

std::string LineOf(const BadSample& bad, std::optional<int64_t> step, int rank) {
  nlohmann::ordered_json object = {{"sample", bad.sample}, {"file", bad.file},
                                   {"line", bad.line},     {"id", bad.id},
                                   {"reason", bad.reason}, {"rank", rank}};
  if (step) object["step"] = *step;
  // File names and messages may hold any bytes.
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

Quarantine::Quarantine(const std::string& path)
    : path_(path), file_(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (!file_.valid()) throw RunError(path_ + ": cannot be opened: " + std::strerror(errno));
  const FileLock lock(file_.get());
  ReadNew();
}

void Quarantine::ReadNew() {
  std::string text;
  std::array<char, 1 << 16> block{};
  for (ssize_t got = 1; got > 0;) {
    got = ReadFullyAt(file_, block.data(), block.size(), read_ + std::ssize(text));
    if (got > 0) text.append(block.data(), static_cast<size_t>(got));
  }
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    try {
      const Json object = ParseJson(std::string_view(text).substr(begin, end - begin), path_);
      known_.emplace(GetString(object, "file", path_), GetInt(object, "line", path_));
    } catch (const DataError&) {
      // A line that a killed run left torn is ignored.
    }
    begin = end + 1;
  }
  // A torn last line is ended, so that the next one begins on its own.
  if (begin < text.size() && WriteFully(file_, "\n")) begin = text.size() + 1;
  read_ += static_cast<int64_t>(begin);
}

bool Quarantine::Add(const BadSample& bad, std::optional<int64_t> step, int rank) {
  if (Has(bad)) return false;
  const FileLock lock(file_.get());
  ReadNew();
  if (!known_.emplace(bad.file, bad.line).second) return false;
  const std::string line = LineOf(bad, step, rank);
  if (!WriteFully(file_, line)) {
    throw RunError(path_ + ": cannot be written: " + std::strerror(errno));
  }
  read_ += static_cast<int64_t>(line.size());
  return true;
}

}  // namespace equipoise
