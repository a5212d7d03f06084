#include "trainer/outputs/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/file_handle.h"
#include "configs/base/json.h"
#include "configs/base/write_advice.h"
#include "trainer/common/agreement.h"
#include "trainer/common/durable_file.h"
#include "trainer/outputs/metrics.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

void CreateFolders(const std::string& dir) {
  for (const char* name : {"", "checkpoints", "log", "tensorboard"}) {
    std::error_code error;
    const fs::path path = fs::path(dir) / name;
    fs::create_directories(path, error);
    if (error) {
      throw RunError(fmt::format("{}: cannot create: {}; choose another run.dir", path.string(),
                                 error.message()));
    }
  }
}

// This process as the lock's owner, such as "process 4711 on node3".
std::string OwnerText() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {}", getpid(), host.data());
}

// Throws RunError when paths that are written or read only later cannot be used.
void CheckPaths(const std::string& dir) {
  const fs::path latest = fs::path(dir) / "checkpoints/latest", stop = fs::path(dir) / "stop";
  std::error_code error;
  const fs::file_type type = fs::symlink_status(latest, error).type();
  if (type != fs::file_type::not_found && type != fs::file_type::symlink) {
    throw RunError(
        fmt::format("{}: is no link; it is where the newest checkpoint is named: move it away",
                    latest.string()));
  }
  if (fs::is_directory(fs::symlink_status(stop, error))) {
    throw RunError(fmt::format(
        "{}: is a folder; a file of this name asks the run to stop: move it away", stop.string()));
  }
}

FileHandle Lock(const std::string& dir) {
  const std::string path = dir + "/lock";
  FileHandle file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.valid()) throw RunError(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    std::array<char, 256> owner{};
    const ssize_t n = ReadFully(file, owner.data(), owner.size() - 1);
    // A file system without locks, such as Lustre mounted without `flock`.
    const std::array<int, 3> none = {ENOSYS, ENOLCK, EOPNOTSUPP};
    if (std::find(none.begin(), none.end(), error) != none.end()) {
      spdlog::warn("{}: cannot lock ({}), so that a second run in this folder goes unnoticed", path,
                   std::strerror(error));
      return file;
    }
    if (error != EWOULDBLOCK)
      throw RunError(fmt::format("{}: cannot lock: {}", path, std::strerror(error)));
    throw RunError(fmt::format("{}: in use by {}; wait for it, stop it, or choose another run.dir",
                               dir, n > 0 ? owner.data() : "another job"));
  }
  if (ftruncate(file.get(), 0) != 0 || !WriteFully(file, OwnerText())) {
    const int error = errno;
    throw RunError(
        fmt::format("{}: cannot write: {}{}", path, std::strerror(error), WriteAdvice(error)));
  }
  return file;
}

// The step of a line of metrics.jsonl; -1 for a line that is incomplete or malformed.
int64_t StepOfLine(std::string_view line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return -1;
  return json["step"].get<int64_t>();
}

// The folder of some checkpoint, valid or damaged; empty when there is none.
std::string AnyCheckpoint(const std::string& run_dir) {
  std::error_code error;
  for (fs::directory_iterator entry(run_dir + "/checkpoints", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("step-")) return entry->path().string();
  }
  return "";
}

// Removes, on destruction, the files and folders that did not exist on construction, the innermost
// first.
class FolderRestorer {
 public:
  explicit FolderRestorer(const fs::path& dir) {
    std::error_code error;
    for (const char* name : {"lock", "checkpoints", "log", "tensorboard"}) {
      if (!fs::exists(dir / name, error)) absent_.push_back(dir / name);
    }
    fs::path path = fs::absolute(dir, error);
    if (!path.has_filename()) path = path.parent_path();  // a/b/ is a/b
    for (; !fs::exists(path, error) && path.has_filename(); path = path.parent_path()) {
      absent_.push_back(path);
    }
  }
  ~FolderRestorer() {
    std::error_code ignored;
    for (const fs::path& path : absent_) fs::remove(path, ignored);
  }
  FolderRestorer(const FolderRestorer&) = delete;
  FolderRestorer& operator=(const FolderRestorer&) = delete;

 private:
  std::vector<fs::path> absent_;
};

}  // namespace

void CheckRunFolder(const std::string& dir, Communicator& world) {
  std::optional<FolderRestorer> restorer;
  if (world.rank() == 0) restorer.emplace(dir);
  const RunFolder folder(dir, world);
}

RunFolder::RunFolder(const std::string& dir, Communicator& world) : dir_(dir) {
  AgreeOrThrowRunError(world, [&] {
    if (world.rank() != 0) return;
    CreateFolders(dir_);
    CheckPaths(dir_);
    lock_ = Lock(dir_);
  });
}

void RunFolder::RequireHeld(Communicator& world) const {
  AgreeOrThrowRunError(world, [&] {
    if (world.rank() != 0) return;
    struct stat held {};
    struct stat there {};
    if (fstat(lock_.get(), &held) == 0 && stat(Path("lock").c_str(), &there) == 0 &&
        held.st_ino == there.st_ino && held.st_dev == there.st_dev)
      return;
    throw RunError(fmt::format(
        "{}: the folder was removed or replaced while this run went on, so that nothing is saved "
        "there; start again, in another run.dir if that one is in use",
        dir_));
  });
}

std::string RunFolder::LogPath(int rank) const {
  return Path(fmt::format("log/rank-{:05}.log", rank));
}

bool HasCheckpoints(const std::string& run_dir) { return !AnyCheckpoint(run_dir).empty(); }

void RefuseCheckpoints(const std::string& run_dir) {
  const std::string found = AnyCheckpoint(run_dir);
  if (found.empty()) return;
  throw ConfigError(
      fmt::format("{}: --resume none would lose this checkpoint; use --resume auto, choose another "
                  "run.dir, or delete it",
                  found));
}

void RefuseOthersCheckpoint(const std::string& run_dir, const std::string& from) {
  const std::string found = AnyCheckpoint(run_dir);
  std::error_code none;  // what is not there is told when it is read
  const fs::path start = fs::canonical(from, none);
  if (found.empty() || none) return;
  const fs::path mine = fs::path(run_dir) / "checkpoints" / start.filename();
  if (fs::equivalent(run_dir, start, none) || fs::equivalent(mine, start, none)) return;
  throw ConfigError(fmt::format(
      "{}: --resume {} of another run would lose this checkpoint; use --resume auto to go "
      "on from it, choose another run.dir, or delete it",
      found, from));
}

void RefuseLostCheckpoints(const std::string& run_dir, const StepInterval& every) {
  const std::string path = run_dir + "/metrics.jsonl";
  const std::vector<StepMetrics> steps = ReadMetrics(path);
  bool saved = !steps.empty() && fs::exists(run_dir + "/report.html");  // written after a save
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    // A step whose loss or gradients are not finite is skipped, and no checkpoint saved after it.
    const StepMetrics& step = steps[i];
    saved |= every.IsDue(step.step) && step.loss && std::isfinite(*step.loss) &&
             std::isfinite(step.grad_norm.value_or(0));
  }
  if (!saved) return;
  throw DataError(fmt::format(
      "{}: has {} steps, but {}/checkpoints holds no checkpoint to go on from; bring them back (is "
      "a disk not mounted?), choose another run.dir, or train anew with --resume none",
      path, steps.back().step, run_dir));
}

std::string RotateMetrics(const std::string& path) {
  if (ReadMetrics(path).empty()) return "";
  for (int64_t number = 1;; ++number) {
    std::string rotated = fmt::format("{}.{}", path, number);
    if (fs::exists(fs::symlink_status(rotated))) continue;
    std::error_code error;
    fs::rename(path, rotated, error);
    if (error) {
      throw RunError(fmt::format("{}: cannot rename {} to it: {}", rotated, path, error.message()));
    }
    return rotated;
  }
}

void TruncateMetrics(const std::string& path, int64_t step) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return;
  std::ostringstream content;
  content << file.rdbuf();
  if (file.bad() || fs::is_directory(path)) {
    throw RunError(
        fmt::format("{}: cannot be read; move it away, or choose another run.dir", path));
  }
  const std::string text = content.str();
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // incomplete
    const std::string_view line(text.data() + begin, end + 1 - begin);
    const int64_t found = StepOfLine(line);
    if (found >= 0 && found <= step) kept += line;
    begin = end + 1;
  }
  if (kept != text) WriteFileDurably(path, kept);
}

}  // namespace equipoise
