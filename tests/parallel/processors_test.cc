#include "parallel/comm/processors.h"

#include <sched.h>

#include <catch2/catch.hpp>
#include <thread>

namespace equipoise {
namespace {

TEST_CASE("allowed processors are those of the affinity", "[processors][cpu]") {
  const ProcessorSet all = AllowedProcessors();
  CHECK(all.count >= 1);
  ProcessorSet one;
  std::thread([&] {  // the affinity is the thread's
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(sched_getcpu()), &set);
    REQUIRE(sched_setaffinity(0, sizeof set, &set) == 0);
    one = AllowedProcessors();
  })
      .join();
  CHECK(one.count == 1);
  CHECK((all.count == 1 || one.hash != all.hash));
  CHECK(AllowedProcessors().hash == all.hash);
}

TEST_CASE("ranks share the processors that they may run on", "[processors][cpu]") {
  CHECK(ProcessorShare(128, 8, {}, 8) == 16);   // all ranks on all processors
  CHECK(ProcessorShare(8, 1, {}, 8) == 8);      // Slurm gives each its own
  CHECK(ProcessorShare(1, 1, {}, 2) == 1);      // mpirun binds each to one
  CHECK(ProcessorShare(2, 8, {}, 8) == 1);      // more ranks than processors
  CHECK(ProcessorShare(128, 8, 32.0, 8) == 4);  // in a container of 32
  CHECK(ProcessorShare(128, 2, 2.5, 2) == 1);
  CHECK(ProcessorShare(4, 2, 64.0, 2) == 2);
  CHECK(ProcessorShare(1, 1) >= 1);
  CHECK(ProcessorShare(1, 1) <= AllowedProcessors().count);
}

}  // namespace
}  // namespace equipoise
