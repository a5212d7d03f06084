#include "configs/base/control_group.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

namespace equipoise {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path;
  bool v2;
};

// Adds the folder of group `path`, below `base`, and of those above it. Those that a container does
// not see, where `path` is the machine's, are no folders.
void AddWithParents(const fs::path& base, const fs::path& path, bool v2,
                    std::vector<Folder>& folders) {
  const fs::path below = path.relative_path();
  const bool outside = std::find(below.begin(), below.end(), "..") != below.end();
  for (fs::path at = outside ? fs::path() : below; !at.empty(); at = at.parent_path())
    folders.push_back({base / at, v2});
  folders.push_back({base, v2});
}

// Folders of the process's groups for `controller`, and of those above.
std::vector<Folder> FoldersOf(const ControlGroups& groups, const std::string& controller) {
  std::vector<Folder> folders;
  std::ifstream membership(groups.membership);
  for (std::string line; std::getline(membership, line);) {
    std::istringstream parts(line);  // "0::PATH" of v2, "NUMBER:CONTROLLER,CONTROLLER:PATH" of v1
    std::string number, controllers, path;
    if (!std::getline(parts, number, ':') || !std::getline(parts, controllers, ':')) continue;
    std::getline(parts, path);
    if (number == "0" && controllers.empty()) {
      AddWithParents(groups.mount, path, true, folders);
    } else if (("," + controllers + ",").find("," + controller + ",") != std::string::npos) {
      AddWithParents(fs::path(groups.mount) / controller, path, false, folders);
    }
  }
  return folders;
}

// The first number of a file; nothing where it is missing or begins otherwise ("max").
std::optional<double> NumberIn(const fs::path& path) {
  std::ifstream file(path);
  double number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

void TakeLeast(std::optional<double> number, std::optional<double>& least) {
  if (number && *number > 0) least = std::min(*number, least.value_or(*number));
}

// Of a file "QUOTA PERIOD" in microseconds, or "max PERIOD".
std::optional<double> QuotaIn(const fs::path& path) {
  std::ifstream file(path);
  double quota = 0, period = 0;
  if (file >> quota >> period && period > 0) return quota / period;
  return std::nullopt;
}

std::optional<double> QuotaIn(const fs::path& quota_path, const fs::path& period_path) {
  const std::optional<double> quota = NumberIn(quota_path), period = NumberIn(period_path);
  if (quota && period && *period > 0) return *quota / *period;
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> MemoryLimit(const ControlGroups& groups) {
  std::optional<double> least;
  for (const Folder& folder : FoldersOf(groups, "memory"))
    TakeLeast(NumberIn(folder.path / (folder.v2 ? "memory.max" : "memory.limit_in_bytes")), least);
  constexpr double kNone = 9e18;  // what v1 says where there is none is about 2^63
  if (!least || *least >= kNone) return std::nullopt;
  return static_cast<int64_t>(*least);
}

std::optional<double> ProcessorLimit(const ControlGroups& groups) {
  std::optional<double> least;
  for (const Folder& folder : FoldersOf(groups, "cpu")) {
    TakeLeast(folder.v2
                  ? QuotaIn(folder.path / "cpu.max")
                  : QuotaIn(folder.path / "cpu.cfs_quota_us", folder.path / "cpu.cfs_period_us"),
              least);
  }
  return least;
}

}  // namespace equipoise
