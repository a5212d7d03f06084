#include "trainer/checkpoint/checkpoint_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

namespace equipoise {
namespace {

namespace fs = std::filesystem;

}  // namespace

std::string StepFolderName(int64_t step) { return fmt::format("step-{:08}", step); }

std::string RankFileName(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

int64_t StepOfName(const std::string& name) {
  const std::string prefix = "step-";
  if (!name.starts_with(prefix)) return -1;
  int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto result = std::from_chars(name.data() + prefix.size(), end, step);
  if (result.ec != std::errc() || result.ptr != end || StepFolderName(step) != name) return -1;
  return step;
}

std::vector<int64_t> StepsIn(const std::string& checkpoints) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(checkpoints, error), end; !error && entry != end;
       entry.increment(error)) {
    const int64_t step = StepOfName(entry->path().filename().string());
    if (step >= 0 && !entry->is_symlink(error) && entry->is_directory(error)) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::string LinkedName(const std::string& checkpoints, const char* link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(fs::path(checkpoints) / link, error);
  return error ? "" : target.string();
}

}  // namespace equipoise
