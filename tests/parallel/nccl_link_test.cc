// A communicator of NCCL that is given up while its rank, or another, still uses it.
#include "parallel/comm/nccl_link.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "configs/base/error.h"
#include "parallel/comm/group_communicator.h"
#include "tests/parallel/nccl_stand_in.h"
#include "tests/parallel/run_ranks.h"

namespace equipoise {
namespace {

using namespace std::chrono_literals;

TEST_CASE("no thread asks NCCL about a communicator that another one aborts", "[nccl][cpu]") {
  NcclStandIn stand_in(2);
  RunRanks(2, [&](Communicator& world) {
    if (world.rank() != 0) return Barrier(world);
    auto api = std::make_shared<NcclApi>(stand_in.Api(0));
    NcclUniqueId id;
    api->Check(api->new_id(&id), "ncclGetUniqueId");
    std::shared_ptr<NcclLink> link;
    std::jthread other;
    // The other thread comes in the middle of the question, and has time to be faster.
    api->async_error = [&, ask = api->async_error](void* comm, int* error) {
      other = std::jthread([&] { link->Abort(); });
      for (int i = 0; i < 20 && stand_in.Aborted() == 0; ++i) std::this_thread::sleep_for(10ms);
      return ask(comm, error);
    };
    CollectiveSteps plan;
    plan.text = "a link";
    plan.tag.point_to_point = true;
    plan.awaited = {1};
    Engine& engine = *dynamic_cast<GroupCommunicator&>(world).engine();
    link = std::make_shared<NcclLink>(engine, plan, api, id, /*ranks=*/1, /*rank=*/0);
    link->Check();
    other.join();
    link->Check();
    Barrier(world);
  });
  CHECK(stand_in.Refused().empty());
  CHECK(stand_in.OpenCommunicators() == 0);
}

}  // namespace
}  // namespace equipoise
