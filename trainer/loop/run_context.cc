#include "trainer/loop/run_context.h"

#include <spdlog/spdlog.h>

#include <string>

#include "parallel/comm/mpi_environment.h"

namespace equipoise {

RunContext::RunContext(const RunConfig& given, MpiEnvironment& mpi)
    : config(given),
      given_cluster(given.cluster),
      setup(SetUpRun(config, mpi)),
      islands(config, *setup.world),
      activity({.out = [](const std::string& line) { spdlog::info("{}", line); }}),
      recorder(mpi.rank()) {}

}  // namespace equipoise
