// The backends of GPU tensors, run over the stand-in: the code is the same, the table is not.
#include "parallel/comm/nccl_communicator.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "parallel/comm/all_to_all.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/staged_communicator.h"
#include "parallel/comm/transfer_group.h"
#include "tests/parallel/communicator_conformance.h"
#include "tests/parallel/nccl_stand_in.h"
#include "tests/parallel/run_ranks.h"

namespace equipoise {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<GroupCommunicator> AsGroup(std::unique_ptr<Communicator> world) {
  return std::unique_ptr<GroupCommunicator>(&dynamic_cast<GroupCommunicator&>(*world.release()));
}

void Unchanged(NcclApi&, int) {}

// Each rank's body with an NCCL communicator over the stand-in, all pairs connected. `change` may
// replace functions of a rank's table.
template <class Body>
void RunNccl(int ranks, NcclStandIn& stand_in, Body body, CommOptions options = {},
             const std::function<void(NcclApi&, int rank)>& change = Unchanged) {
  const auto wrap = [&](std::unique_ptr<Communicator> world) -> std::unique_ptr<Communicator> {
    auto api = std::make_shared<NcclApi>(stand_in.Api(world->rank()));
    change(*api, world->rank());
    auto nccl = std::make_unique<NcclCommunicator>(AsGroup(std::move(world)), api, at::kCPU);
    nccl->Connect(AllPairs(ranks));
    return nccl;
  };
  RunRanksOver(ranks, wrap, body, options);
}

using Change = std::function<void(NcclApi&, int rank)>;

// A rank whose thread does not run for half of it is taken for stopped: long on a busy machine.
constexpr CommOptions kSoon{.timeout = 3s};

// What each rank's first failing operation says. `failed` hears of each.
template <class Body>
std::vector<std::string> Errors(int ranks, NcclStandIn& stand_in, Body body, Arrivals& failed,
                                const Change& change = Unchanged) {
  std::vector<std::string> errors(ranks);
  Arrivals ended;
  const auto run = [&](Communicator& world) {
    try {
      body(world);
    } catch (const RunError& error) {
      errors[world.rank()] = error.what();
      failed.Arrive();
    }
    // Leaving at once would tell the others more than a rank that hangs does.
    ended.Arrive();
    ended.WaitFor(ranks);
  };
  RunNccl(ranks, stand_in, run, kSoon, change);
  return errors;
}

TEST_CASE("ranks share a GPU where its place on a machine's bus is the same", "[nccl][cpu]") {
  // By rank: the machine, and the GPU there; each rank sees one device alone.
  struct Case {
    std::vector<int> machine, gpu;
    int most;
  };
  const Case each =
      GENERATE(Case{{0, 0}, {0, 1}, 1}, Case{{0, 0}, {3, 3}, 2}, Case{{0, 1}, {3, 3}, 1},
               Case{{0, 0, 2, 2}, {0, 1, 0, 1}, 1}, Case{{0, 0, 2, 2}, {0, 1, 1, 1}, 2},
               Case{{0, 0, 0, 0}, {1, 0, 1, 1}, 3});
  const auto ranks = static_cast<int>(each.machine.size());
  NcclStandIn stand_in(ranks);
  std::vector<int> most(each.machine.size(), -1);
  RunRanks(ranks, [&](Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    const CudaApi cuda = stand_in.Api(each.gpu[rank]).cuda;
    most[rank] = MostRanksPerGpu(world, cuda, each.machine[rank]);
  });
  CHECK(most == std::vector<int>(each.machine.size(), each.most));
}

TEST_CASE("an NCCL that keeps no order of launches is refused", "[nccl][cpu]") {
  NcclStandIn stand_in(1);
  int version = 0;
  REQUIRE(stand_in.Api(0).version(&version) == 0);
  CHECK_NOTHROW(RequireLaunchOrder(version));
  CHECK_NOTHROW(RequireLaunchOrder(22600));
  CHECK_THROWS_AS(RequireLaunchOrder(22599), ConfigError);
  CHECK_THROWS_WITH(RequireLaunchOrder(22501),
                    Catch::StartsWith("parallel.nccl: found NCCL 2.25.1; ") &&
                        Catch::Contains("from NCCL 2.26.0 on; give the path of a newer library"));
}

TEST_CASE("NCCL over the stand-in passes every conformance check", "[comm]") {
  for (const int ranks : {2, 3, 4, 8}) {
    for (const ConformanceCheck& check : ConformanceChecks(Sums::kEveryHop)) {
      INFO(check.name << " on " << ranks << " ranks");
      NcclStandIn stand_in(ranks);
      CHECK_NOTHROW(RunNccl(ranks, stand_in, check.run));
      CHECK(stand_in.OpenCommunicators() == 0);
      CHECK(stand_in.Aborted() == 0);
      CHECK(stand_in.Refused().empty());
    }
  }
}

TEST_CASE("staged tensors pass every conformance check, to the bit", "[comm]") {
  for (const int ranks : {2, 3, 8}) {
    for (const ConformanceCheck& check : ConformanceChecks()) {
      INFO(check.name << " on " << ranks << " ranks");
      NcclStandIn stand_in(ranks);
      const auto wrap = [&](std::unique_ptr<Communicator> world) {
        auto api = std::make_shared<const CudaApi>(stand_in.Api(world->rank()).cuda);
        return std::make_unique<StagedCommunicator>(AsGroup(std::move(world)), api, at::kCPU);
      };
      CHECK_NOTHROW(RunRanksOver(ranks, wrap, check.run));
      CHECK(stand_in.PinnedBuffers() == 0);
    }
  }
}

TEST_CASE("staging of many sizes pins little more than the largest takes", "[comm]") {
  constexpr int64_t kRows = 1000, kWidth = 64;
  const bool grows = GENERATE(true, false);
  NcclStandIn stand_in(2);
  const auto wrap = [&](std::unique_ptr<Communicator> world) {
    auto api = std::make_shared<const CudaApi>(stand_in.Api(world->rank()).cuda);
    return std::make_unique<StagedCommunicator>(AsGroup(std::move(world)), api, at::kCPU);
  };
  RunRanksOver(2, wrap, [&](Communicator& world) {
    for (int64_t i = 1; i <= kRows; ++i) {
      at::Tensor tensor = at::full({grows ? i : kRows + 1 - i, kWidth}, 1.0);
      world.AllReduce(tensor, ReduceOp::kSum).Wait();
      EQUIPOISE_CHECK(tensor.eq(2).all().item<bool>());
    }
  });
  // By two ranks; twice the largest, and an eighth for rounding.
  CHECK(stand_in.MostPinnedBytes() <= 2 * (2 * 9 * kRows * kWidth * sizeof(float) / 8));
  CHECK(stand_in.PinnedBuffers() == 0);
}

TEST_CASE("tensors of the CPU keep their backend beside NCCL", "[comm]") {
  NcclStandIn stand_in(2);
  const auto wrap = [&](std::unique_ptr<Communicator> world) {
    auto api = std::make_shared<const NcclApi>(stand_in.Api(world->rank()));
    return std::make_unique<NcclCommunicator>(AsGroup(std::move(world)), api, at::kCUDA);
  };
  // Not connected: NCCL could not send.
  RunRanksOver(2, wrap, [](Communicator& world) {
    at::Tensor tensor = at::full({3}, world.rank() + 1.0);
    world.AllReduce(tensor, ReduceOp::kSum).Wait();
    EQUIPOISE_CHECK(tensor[0].item<float>() == 3);
    if (world.rank() == 0) return world.Send(tensor, 1).Wait();
    world.Recv(tensor, 0).Wait();
  });
}

TEST_CASE("transfers that cross are one group of NCCL", "[comm]") {
  NcclStandIn stand_in(2);
  std::vector<std::string> calls(2);
  const auto change = [&](NcclApi& api, int rank) {
    const auto note = [&calls, rank](const char* what, auto call) {
      return [&calls, rank, what, call](auto... arguments) {
        calls[rank] += what;
        return call(arguments...);
      };
    };
    api.group_start = note("(", api.group_start);
    api.group_end = note(")", api.group_end);
    api.send = note("s", api.send);
    api.receive = note("r", api.receive);
  };
  std::vector<float> got(2);
  const auto body = [&](Communicator& world) {
    calls[world.rank()].clear();
    at::Tensor mine = at::full({3}, world.rank() + 1.0), theirs = at::zeros({3});
    const int other = 1 - world.rank();
    std::vector<Work> works;
    {
      const TransferGroup together(world);
      works = {world.Send(mine, other), world.Recv(theirs, other)};
    }
    for (Work& work : works) work.Wait();
    got[world.rank()] = theirs[2].item<float>();
  };
  RunNccl(2, stand_in, body, {}, change);
  CHECK(got == std::vector<float>{2, 1});
  CHECK(calls == std::vector<std::string>{"(sr)", "(sr)"});
}

TEST_CASE("a transfer between ranks that are not connected is refused", "[comm]") {
  NcclStandIn stand_in(3);
  const auto body = [](Communicator& world) {
    const auto part = world.Split(world.rank() / 2, 0, "part");
    at::Tensor tensor = at::zeros({1});
    if (world.rank() == 0) part->Send(tensor, 1);
  };
  CHECK_THROWS_WITH(RunNccl(3, stand_in, body),
                    Catch::Contains("rank 0 and rank 1 of group part are not connected"));
}

TEST_CASE("a rank that never comes is named by the deadline, and NCCL is aborted", "[comm]") {
  for (const bool before : {false, true}) {  // an operation that connects the ranks
    NcclStandIn stand_in(3);
    Arrivals failed;
    const auto body = [&](Communicator& world) {
      at::Tensor tensor = at::zeros({1000});
      if (before) world.AllReduce(tensor, ReduceOp::kSum).Wait();
      if (world.rank() == 2) return failed.WaitFor(2);
      if (world.rank() == 1) return world.Recv(tensor, 2).Wait();
      world.AllReduce(tensor, ReduceOp::kSum).Wait();
    };
    const auto errors = Errors(3, stand_in, body, failed);
    INFO(errors[0] << "\n" << errors[1] << "\n" << errors[2]);
    const std::string number = before ? "#2" : "#1";
    CHECK_THAT(errors[0], Catch::StartsWith("rank 0: all_reduce " + number +
                                            " in group world (3.9 KiB): no answer from rank "));
    CHECK_THAT(errors[1], Catch::StartsWith("rank 1: recv from rank 2 #1 in group world (3.9 KiB): "
                                            "no answer from rank 2 for "));
    for (int rank = 0; rank < 2; ++rank) {
      CHECK_THAT(errors[rank], Catch::Contains("rank 2 is running and has not entered it"));
    }
    CHECK(errors[2].empty());
    CHECK(stand_in.AwaitOpen(0) == 0);
    CHECK(stand_in.Aborted() == 2);
    CHECK_THAT(stand_in.Refused(), !Catch::Contains("never destroyed"));  // though NCCL waits
  }
}

TEST_CASE("the compute stream alone is held up, behind the operation and what ends it", "[comm]") {
  NcclStandIn stand_in(3);
  RunNccl(3, stand_in, [](Communicator& world) {
    const auto mine = static_cast<float>(world.rank() + 1);
    at::Tensor sum = at::full({1000}, mine), most = at::full({1000}, mine), all = at::zeros({3, 4});
    Work summed = world.AllReduce(sum, ReduceOp::kSum);
    summed.WaitOnStream();
    world.AllReduce(most, ReduceOp::kMax).WaitOnStream();  // gathered, and reduced on the spot
    world.AllGather(all, at::full({4}, mine)).WaitOnStream();
    summed.Wait();
    summed.WaitOnStream();
    if (!sum.eq(6).all().item<bool>() || !most.eq(3).all().item<bool>() ||
        !all.eq(at::arange(1, 4).unsqueeze(1)).all().item<bool>())
      throw std::runtime_error("used before the end");
  });
  CHECK(stand_in.OpenCommunicators() == 0);
}

TEST_CASE("an operation lets go of its tensors when their stream waits for it", "[comm]") {
  NcclStandIn stand_in(2);
  std::atomic<bool> behind{false};  // whether the GPUs are, so that no thread sees an end
  std::atomic<void*> stream{nullptr};
  const auto change = [&](NcclApi& api, int) {
    api.cuda.current_stream = [&] { return stream.load(); };
    api.cuda.event_query = [&, query = api.cuda.event_query](void* event) {
      return behind ? CudaApi::kNotReady : query(event);
    };
  };
  int other = 0;
  struct Held {
    size_t before, by_other_stream, after;
  };
  std::vector<Held> held(2);
  Arrivals asked, put, ended;
  const auto body = [&](Communicator& world) {
    const auto mine = static_cast<float>(world.rank() + 1);
    at::Tensor all = at::zeros({2, 4});
    behind = true;  // all that connected the ranks has been seen to end
    Work gather = world.AllGather(all, at::full({4}, mine));
    Held& of = held[world.rank()];
    of.before = all.use_count();
    asked.Arrive(), asked.WaitFor(2);
    stream = &other;  // of the threads that compute, both
    gather.WaitOnStream();
    of.by_other_stream = all.use_count();
    put.Arrive(), put.WaitFor(2);
    stream = nullptr;
    gather.WaitOnStream();
    of.after = all.use_count();
    ended.Arrive(), ended.WaitFor(2);
    behind = false;
    gather.Wait();
    if (!all.eq(at::arange(1, 3).unsqueeze(1)).all().item<bool>())
      throw std::runtime_error("used before the end");
  };
  RunNccl(2, stand_in, body, {}, change);
  for (const Held& of : held) {
    CHECK(of.before > 1);
    CHECK(of.by_other_stream == of.before);  // which says nothing of the stream of their memory
    CHECK(of.after == 1);
  }
  CHECK(stand_in.Refused().empty());
}

TEST_CASE("a rank that never comes is named by the call behind a stream that waits", "[comm]") {
  NcclStandIn stand_in(3);
  Arrivals failed;
  const auto body = [&](Communicator& world) {
    at::Tensor tensor = at::zeros({1000});
    if (world.rank() == 2) return failed.WaitFor(2);
    world.AllReduce(tensor, ReduceOp::kSum).WaitOnStream();  // ends with what was given up
    world.AllReduce(tensor, ReduceOp::kSum).WaitOnStream();
  };
  const auto errors = Errors(3, stand_in, body, failed);
  INFO(errors[0] << "\n" << errors[1] << "\n" << errors[2]);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK_THAT(errors[rank],
               Catch::Contains("all_reduce #") &&
                   Catch::Contains("in group world (3.9 KiB): no answer from rank 2"));
  }
  CHECK(stand_in.AwaitOpen(0) == 0);
  CHECK(stand_in.Aborted() == 2);
}

TEST_CASE("a rank that fails is named by those who wait on a GPU", "[comm]") {
  NcclStandIn stand_in(3);
  const auto body = [](Communicator& world) {
    if (world.rank() == 1) throw DataError("disk full");
    Barrier(world);
  };
  CHECK_THROWS_WITH(RunNccl(3, stand_in, body), "disk full");
}

TEST_CASE("a rank that never joins a communicator of NCCL is named by the deadline", "[comm]") {
  NcclStandIn stand_in(2);
  Arrivals failed;
  std::string error;
  // Rank 1 hangs between the exchange of ids and NCCL's own start.
  const auto wrap = [&](std::unique_ptr<Communicator> world) -> std::unique_ptr<Communicator> {
    auto api = std::make_shared<NcclApi>(stand_in.Api(world->rank()));
    const int rank = world->rank();
    if (rank == 1) {
      auto group = AsGroup(std::move(world));
      at::Tensor id = at::zeros({1, sizeof(NcclUniqueId)}, at::kByte);
      group->Broadcast(id, 0).Wait();
      failed.WaitFor(1);
      return group;
    }
    try {
      return std::make_unique<NcclCommunicator>(AsGroup(std::move(world)), api, at::kCPU);
    } catch (const RunError& thrown) {
      error = thrown.what();
      failed.Arrive();
      throw;
    }
  };
  const auto body = [](Communicator&) {};
  CHECK_THROWS_AS(RunRanksOver(2, wrap, body, kSoon), RunError);
  CHECK_THAT(error, Catch::StartsWith("rank 0: ncclCommInitRank in group world: no answer from "
                                      "rank 1 for "));
  CHECK(stand_in.OpenCommunicators() == 0);
}

TEST_CASE("an NCCL communicator that cannot be made is told by its rank", "[comm]") {
  NcclStandIn stand_in(2);
  const auto refuse = [](NcclApi& api, int rank) {
    if (rank == 1) api.init = [](void**, int, NcclUniqueId, int) { return 5; };
  };
  const auto body = [](Communicator&) {};
  CHECK_THROWS_WITH(RunNccl(2, stand_in, body, kSoon, refuse),
                    Catch::Contains("ncclCommInitRank in group world") &&
                        Catch::Contains("refused by the stand-in (NCCL error 5"));
}

// Ranks that all reduce, with GPUs that do something else from then on.
std::vector<std::string> BrokenGpus(int ranks, const std::function<int(int rank)>& state) {
  NcclStandIn stand_in(ranks);
  std::atomic<bool> broken{false};
  Arrivals ready;
  const auto body = [&](Communicator& world) {
    Barrier(world);
    ready.Arrive();
    ready.WaitFor(ranks);  // the barrier of the other rank is not to break
    broken = true;
    at::Tensor tensor = at::zeros({1000});
    world.AllReduce(tensor, ReduceOp::kSum).Wait();
  };
  const auto change = [&](NcclApi& api, int rank) {
    api.cuda.event_query = [&, rank, query = api.cuda.event_query](void* event) {
      return broken && state(rank) != 0 ? state(rank) : query(event);
    };
  };
  Arrivals failed;
  return Errors(ranks, stand_in, body, failed, change);
}

TEST_CASE("a collective that all have entered and that stays stuck says so", "[comm]") {
  const auto errors = BrokenGpus(2, [](int) { return CudaApi::kNotReady; });
  INFO(errors[0] << "\n" << errors[1]);
  for (const std::string& error : errors) {
    CHECK_THAT(error, Catch::Contains("in group world") &&
                          Catch::Contains("every rank has entered it, and no progress for "));
  }
}

TEST_CASE("an error of one GPU is told by its rank, and ends the others", "[comm]") {
  const auto errors = BrokenGpus(2, [](int rank) { return rank == 1 ? 700 : CudaApi::kNotReady; });
  INFO(errors[0] << "\n" << errors[1]);
  CHECK_THAT(errors[1], Catch::StartsWith("rank 1: all_reduce #") &&
                            Catch::Contains("cudaEventQuery: refused by the stand-in (CUDA error "
                                            "700, device 1)"));
  CHECK_THAT(errors[0], Catch::StartsWith("rank 0: all_reduce #") &&
                            Catch::Contains("CUDA error 700, device 1"));
}

// What the two ranks do with two tensors; the texts of both together.
template <class Body>
std::string TwoRanks(Body body) {
  NcclStandIn stand_in(2);
  Arrivals failed;
  const auto errors = Errors(2, stand_in, body, failed);
  return errors[0] + "\n" + errors[1];
}

TEST_CASE("ranks whose operations differ are told so", "[comm]") {
  CHECK_THAT(TwoRanks([](Communicator& world) {
               at::Tensor tensor = at::zeros({world.rank() + 4});
               world.AllReduce(tensor, ReduceOp::kSum).Wait();
             }),
             Catch::Contains("all_reduce #1 (5 elements of type 7)") &&
                 Catch::Contains("does not fit") &&
                 Catch::Contains("all_reduce #1 in group world ("));
  CHECK_THAT(TwoRanks([](Communicator& world) {
               at::Tensor tensor = at::zeros({4}, world.rank() ? at::kFloat : at::kBFloat16);
               if (world.rank() == 0) return world.Send(tensor, 1).Wait();
               world.Recv(tensor, 0).Wait();
             }),
             Catch::Contains("(4 elements of type 9)") && Catch::Contains("does not fit"));
  CHECK_THAT(TwoRanks([](Communicator& world) {
               at::Tensor tensor = at::zeros({4});
               if (world.rank() == 0) return world.AllReduce(tensor, ReduceOp::kSum).Wait();
               world.Broadcast(tensor, 0).Wait();
             }),
             Catch::Contains("broadcast #1") && Catch::Contains("does not fit"));
}

TEST_CASE("groups used in different orders are told so", "[comm]") {
  CHECK_THAT(TwoRanks([](Communicator& world) {
               const auto part = world.Split(0, 0, "part");
               at::Tensor a = at::zeros({4}), b = at::zeros({4});
               Work first, second;
               if (world.rank() == 0) first = world.AllReduce(a, ReduceOp::kSum);
               second = part->AllReduce(b, ReduceOp::kSum);
               if (world.rank() == 1) first = world.AllReduce(a, ReduceOp::kSum);
               first.Wait();
               second.Wait();
             }),
             Catch::Contains("their common collectives need one order"));
}

TEST_CASE("bf16 sums of 8 ranks lie within 4 ulp", "[comm]") {
  NcclStandIn stand_in(8);
  std::vector<double> sums(8);
  RunNccl(8, stand_in, [&](Communicator& world) {
    at::Tensor tensor = at::full({64}, 1.0 + world.rank() / 128.0, at::kBFloat16);
    world.AllReduce(tensor, ReduceOp::kSum).Wait();
    sums[world.rank()] = tensor[0].item<double>();
  });
  for (const double sum : sums) {
    CHECK(sum == sums[0]);  // the same on all ranks, whatever was rounded
    CHECK(std::abs(sum - 8.21875) <= 4 * 0.0625);
  }
}

}  // namespace
}  // namespace equipoise
