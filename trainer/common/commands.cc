#include "trainer/common/commands.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "configs/base/error.h"
#include "configs/base/shown_text.h"
#include "parallel/comm/mpi_environment.h"

namespace equipoise {

void RequireOneProcess(const MpiEnvironment& mpi, const std::string& command) {
  if (mpi.size() == 1) return;
  throw ConfigError(command + ": works in one process; start it without mpirun");
}

void RequireOtherFile(const std::string& option, const std::string& path,
                      const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    std::error_code none;
    if (!std::filesystem::equivalent(path, input, none)) continue;
    throw ConfigError(
        fmt::format("{}: {} is read by this command; name another file", option, ShownText(path)));
  }
}

void WriteResult(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw RunError(path + ": cannot be written; give a path in a folder that can be");
}

}  // namespace equipoise
