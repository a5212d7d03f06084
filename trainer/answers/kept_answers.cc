#include "trainer/answers/kept_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/shown_text.h"
#include "parallel/schedule/plan_hash.h"
#include "trainer/common/durable_file.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

// Endings of what a model is read from; answers may lie beside it.
constexpr std::array<std::string_view, 6> kModelFiles = {".safetensors", ".bin",   ".json",
                                                         ".jinja",       ".model", ".txt"};

std::string FirstLine(uint64_t command) {
  return fmt::format("{{\"answers_of\": \"{}\"}}\n", HexDigits(command));
}

}  // namespace

uint64_t FolderStamp(const std::string& folder) {
  StableHash hash;
  try {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const auto known =
          std::find(kModelFiles.begin(), kModelFiles.end(), entry.path().extension().string());
      if (entry.is_regular_file() && known != kModelFiles.end()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
      hash.Add(file.filename().string());
      hash.Add(static_cast<uint64_t>(fs::file_size(file)));
      hash.Add(static_cast<uint64_t>(fs::last_write_time(file).time_since_epoch().count()));
    }
  } catch (const fs::filesystem_error& error) {
    throw RunError(fmt::format("{}: {}", ShownText(folder), error.code().message()));
  }
  return hash.value();
}

KeptAnswers::KeptAnswers(std::string path, uint64_t command, int64_t questions)
    : path_(std::move(path)) {
  const std::string first = FirstLine(command);
  std::string kept = first;
  std::ostringstream content;
  if (std::ifstream file(path_, std::ios::binary); file) content << file.rdbuf();
  const std::string text = content.str();
  for (size_t begin = text.starts_with(first) ? first.size() : text.size(); begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string_view line(text.data() + begin, end + 1 - begin);
    try {
      const std::vector<NumberedAnswer> some = AnswersOf(line);
      const bool ours = std::all_of(some.begin(), some.end(), [&](const NumberedAnswer& one) {
        return one.question >= 0 && one.question < questions;
      });
      if (!ours) break;
      taken_.insert(taken_.end(), some.begin(), some.end());
    } catch (const DataError&) {
      break;
    }
    kept += line;
    begin = end + 1;
  }
  if (kept != text) WriteFileDurably(path_, kept);
}

void KeptAnswers::Add(const std::vector<NumberedAnswer>& answers) {
  std::ofstream file(path_, std::ios::binary | std::ios::app);
  file << TextOf(answers) << '\n' << std::flush;
  if (!file) throw RunError(fmt::format("{}: {}", ShownText(path_), std::strerror(errno)));
}

void KeptAnswers::Remove() {
  std::error_code ignored;
  fs::remove(path_, ignored);
}

}  // namespace equipoise
