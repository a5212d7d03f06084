// A communicator of NCCL that is given up while its rank, or another, still uses it.
#include "parallel/comm/nccl_link.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "configs/base/error.h"
#include "parallel/comm/all_to_all.h"
#include "parallel/comm/group_communicator.h"
#include "parallel/comm/nccl_communicator.h"
#include "tests/parallel/nccl_stand_in.h"
#include "tests/parallel/run_ranks.h"

namespace equipoise {
namespace {

using namespace std::chrono_literals;

CollectiveSteps Plan() {
  CollectiveSteps plan;
  plan.text = "a link";
  plan.tag.point_to_point = true;
  plan.awaited = {1};
  return plan;
}

// Of this rank alone.
std::shared_ptr<NcclLink> MakeLink(Engine& engine, const std::shared_ptr<const NcclApi>& api) {
  NcclUniqueId id;
  api->Check(api->new_id(&id), "ncclGetUniqueId");
  return std::make_shared<NcclLink>(engine, Plan(), api, id, /*ranks=*/1, /*rank=*/0);
}

TEST_CASE("no thread asks NCCL about a communicator that another one aborts", "[nccl][cpu]") {
  NcclStandIn stand_in(2);
  RunRanks(2, [&](Communicator& world) {
    if (world.rank() != 0) return Barrier(world);
    auto api = std::make_shared<NcclApi>(stand_in.Api(0));
    std::shared_ptr<NcclLink> link;
    std::jthread other;
    // The other thread comes in the middle of the question, and has time to be faster.
    api->async_error = [&, ask = api->async_error](void* comm, int* error) {
      other = std::jthread([&] { link->Abort(); });
      for (int i = 0; i < 20 && stand_in.Aborted() == 0; ++i) std::this_thread::sleep_for(10ms);
      return ask(comm, error);
    };
    Engine& engine = *dynamic_cast<GroupCommunicator&>(world).engine();
    link = MakeLink(engine, api);
    link->Check();
    other.join();
    link->Check();
    Barrier(world);
  });
  CHECK(stand_in.Refused().empty());
  CHECK(stand_in.AwaitOpen(0) == 0);
}

TEST_CASE("a communicator is aborted when no thread is inside of its calls", "[nccl][cpu]") {
  NcclStandIn stand_in(2);
  const bool ends = GENERATE(true, false);  // the call, before the abort
  std::atomic<bool> freed_inside{false}, refused{false};
  Arrivals ended;
  RunRanks(2, [&](Communicator& world) {
    if (world.rank() != 0) return ended.WaitFor(1);
    const auto api = std::make_shared<NcclApi>(stand_in.Api(0));
    Engine& engine = *dynamic_cast<GroupCommunicator&>(world).engine();
    const auto link = MakeLink(engine, api);
    // Another thread gives the link up in the middle of the call, and has time to be faster.
    const auto call = [&](const NcclApi&, void*, void*) {
      std::jthread([&] { link->Abort(); }).join();
      const auto limit = ends ? NcclLink::kCallsEnd / 4 : NcclLink::kCallsEnd * 10;
      const auto latest = std::chrono::steady_clock::now() + limit;
      while (stand_in.Aborted() == 0 && std::chrono::steady_clock::now() < latest)
        std::this_thread::sleep_for(10ms);
      freed_inside = stand_in.Aborted() > 0;
      return 0;
    };
    for (int i = 0; i < 2; ++i) {
      NcclBatch batch;
      batch.Add(engine, Plan(), {{link, "ncclAllReduce", call}});
      batch.Issue();
    }
    refused = !link->Enter();
    ended.Arrive();  // a rank whose operation has failed can do no more together
  });
  CHECK(freed_inside == !ends);  // one that waits for the abort is not waited for for ever
  CHECK(refused);
  CHECK(stand_in.AwaitOpen(0) == 0);
  CHECK(stand_in.Aborted() == 1);
}

TEST_CASE("a rank that fails alone tells the others before NCCL could wait for them",
          "[nccl][cpu]") {
  NcclStandIn stand_in(3);
  std::vector<std::string> errors(3);
  const auto body = [&](Communicator& world) {
    const std::shared_ptr<Engine> engine = dynamic_cast<GroupCommunicator&>(world).engine();
    try {
      NcclCommunicator nccl(
          std::make_unique<GroupCommunicator>(engine, GroupCommunicator::Everyone::kWorld),
          std::make_shared<NcclApi>(stand_in.Api(world.rank())), at::kCPU);
      nccl.Connect(AllPairs(3));
      Barrier(nccl);
      if (world.rank() == 1) throw RunError("disk full");
      Barrier(nccl);
    } catch (const RunError& error) {
      errors[world.rank()] = error.what();
      engine->Leave({1, error.what()}, 10s);
    }
  };
  RunRanks(3, body, {.timeout = 3s});
  INFO(errors[0] << "\n" << errors[2]);
  CHECK_THAT(errors[0], Catch::Contains("rank 1 failed: disk full"));
  CHECK_THAT(errors[2], Catch::Contains("rank 1 failed: disk full"));
}

}  // namespace
}  // namespace equipoise
