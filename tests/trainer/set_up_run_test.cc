#include "trainer/run/set_up_run.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <catch2/catch.hpp>
#include <chrono>

#include "parallel/comm/mpi_environment.h"

namespace equipoise {
namespace {

// Of repeated places the last value should stay, and which thread is last is open.
void WriteToRepeatedPlaces() {
  at::Tensor to = at::zeros({4});
  to.put_(at::zeros({8}, at::kLong), at::ones({8}));
}

TEST_CASE("a run is set up as its configuration says", "[set_up_run][cpu]") {
  RunConfig config;
  config.train.device = "cpu";
  config.train.precision = "bf16";
  config.train.threads = 3;
  config.train.deterministic = true;
  config.parallel.bucket_bytes = 4096;
  config.model.freeze = {"vision"};
  MpiEnvironment mpi;  // a world of one
  const RunSetup setup = SetUpRun(config, mpi);
  CHECK(setup.world->size() == 1);
  CHECK(setup.hosts.size() == 1);
  CHECK_FALSE(setup.hosts[0].empty());
  CHECK(at::get_num_threads() == 3);
  CHECK_THROWS_WITH(WriteToRepeatedPlaces(), Catch::Matchers::Contains("deterministic"));
  const ParallelModel::Options options = ModelOptionsOf(config, setup);
  CHECK(options.bucket_bytes == 4096);
  CHECK(options.part.dtype == at::kBFloat16);
  CHECK(options.part.device == at::kCPU);
  CHECK(options.part.freeze == std::vector<std::string>{"vision"});

  config.train.deterministic = false;
  SetUpCompute(config.train, 1);
  CHECK_NOTHROW(WriteToRepeatedPlaces());
}

TEST_CASE("ranks wait for each other as long as the configuration says", "[set_up_run][cpu]") {
  ParallelSection parallel;
  parallel.timeout_s = 7.25;
  CHECK(CommOptionsOf(parallel).timeout == std::chrono::milliseconds(7250));
  CHECK(CommOptionsOf(ParallelSection()).timeout == CommOptions().timeout);
}

}  // namespace
}  // namespace equipoise
