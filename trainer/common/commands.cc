#include "trainer/common/commands.h"

#include <fstream>

#include "configs/base/error.h"
#include "parallel/comm/mpi_environment.h"

namespace equipoise {

void RequireOneProcess(const MpiEnvironment& mpi, const std::string& command) {
  if (mpi.size() == 1) return;
  throw ConfigError(command + ": works in one process; start it without mpirun");
}

void WriteResult(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw RunError(path + ": cannot be written; give a path in a folder that can be");
}

}  // namespace equipoise
