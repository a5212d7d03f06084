// Runs the conformance checks on the ranks that mpirun has started.
// usage: mpi_conformance [--strict]   (synchronous sends, messages cut into pieces of 1000 bytes)
#include <cstdio>
#include <exception>
#include <string>

#include "configs/base/error.h"
#include "parallel/comm/make_communicator.h"
#include "tests/parallel/communicator_conformance.h"
#include "tests/parallel/run_under_mpi.h"

namespace equipoise {
namespace {

void RunChecks(MpiEnvironment& mpi, const CommOptions& options) {
  const auto world = MakeWorldCommunicator(mpi, options);
  for (const ConformanceCheck& check : ConformanceChecks()) {
    try {
      check.run(*world);
    } catch (const std::exception& error) {
      throw RunError(check.name + ": " + error.what());
    }
    Barrier(*world);
    if (world->rank() == 0) std::printf("passed: %s\n", check.name.c_str());
  }
}

int Main(bool strict) {
  CommOptions options;
  options.timeout = std::chrono::seconds(60);
  if (strict) {
    options.synchronous_sends = true;
    options.piece_bytes = 1000;
  }
  return RunUnderMpi([&](MpiEnvironment& mpi) { RunChecks(mpi, options); });
}

}  // namespace
}  // namespace equipoise

int main(int argc, char** argv) {
  return equipoise::Main(argc > 1 && std::string(argv[1]) == "--strict");
}
