#include "trainer/common/commands.h"

#include "configs/base/error.h"
#include "parallel/comm/mpi_environment.h"

namespace equipoise {

void RequireOneProcess(const MpiEnvironment& mpi, const std::string& command) {
  if (mpi.size() == 1) return;
  throw ConfigError(command + ": works in one process; start it without mpirun");
}

}  // namespace equipoise
