// The stand-in finds what would hang on GPUs.
#include "tests/parallel/nccl_stand_in.h"

#include <atomic>
#include <barrier>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace equipoise {
namespace {

// A rank of two, straight on the table.
struct Rank {
  NcclApi api;
  int rank;
  void* comm = nullptr;
  void* stream = nullptr;
  float in = 0, out = -1;

  int other() const { return 1 - rank; }
  int Send() { return api.send(&in, 1, NcclApi::kFloat32, other(), comm, stream); }
  int Receive() { return api.receive(&out, 1, NcclApi::kFloat32, other(), comm, stream); }
  int Exchange(bool grouped) {
    if (grouped) api.group_start();
    const int sent = Send();
    const int received = Receive();
    const int end = grouped ? api.group_end() : 0;
    return sent != 0 ? sent : received != 0 ? received : end;
  }
  std::string Error() { return api.last_error(comm); }
};

// Both ranks in threads of their own; their last errors together.
std::string Run(const std::function<void(Rank&)>& body) {
  NcclStandIn stand_in(2);
  NcclUniqueId id;
  stand_in.Api(0).new_id(&id);
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  std::barrier both(2);
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      Rank rank{stand_in.Api(r), r};
      rank.in = static_cast<float>(r);
      rank.api.cuda.stream_create(&rank.stream, 0);
      rank.api.init(&rank.comm, 2, id, r);
      body(rank);
      errors[r] = rank.Error();
      both.arrive_and_wait();
      // What the other still waits for will not come.
      rank.api.abort(rank.comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors[0] + errors[1];
}

void WaitFor(Rank& rank) {
  void* event = nullptr;
  rank.api.cuda.event_create(&event, 0);
  rank.api.cuda.event_record(event, rank.stream);
  while (rank.api.cuda.event_query(event) != 0) std::this_thread::yield();
  rank.api.cuda.event_destroy(event);
}

TEST_CASE("crossing transfers in one group pass", "[comm]") {
  std::vector<float> got(2, -1);
  CHECK(Run([&](Rank& rank) {
          for (int i = 0; i < 3; ++i) rank.Exchange(true);
          WaitFor(rank);
          got[rank.rank] = rank.out;
        }).empty());
  CHECK(got == std::vector<float>{1, 0});
}

TEST_CASE("crossing transfers without a group would hang, when ranks connect", "[comm]") {
  CHECK_THAT(Run([](Rank& rank) { rank.Exchange(false); }),
             Catch::Contains("would hang") && Catch::Contains("into one group"));
}

TEST_CASE("crossing transfers without a group would hang, once connected", "[comm]") {
  CHECK_THAT(Run([](Rank& rank) {
               rank.Exchange(true);
               WaitFor(rank);
               rank.Exchange(false);
             }),
             Catch::Contains("would hang") && Catch::Contains("each waits for a call behind"));
}

TEST_CASE("transfers in matching order need no group", "[comm]") {
  CHECK(Run([](Rank& rank) {
          for (int i = 0; i < 2; ++i) {
            rank.rank == 0 ? rank.Send() : rank.Receive();
            rank.rank == 0 ? rank.Receive() : rank.Send();
          }
          WaitFor(rank);
        }).empty());
}

// Two ranks that send to each other, over streams that share a queue; whether they come to an end.
bool EndsInOneQueue(bool grouped) {
  NcclStandIn stand_in(2, NcclStandIn::Queues::kOne);
  std::vector<NcclUniqueId> ids(2);  // of transfers from rank 0 and 1
  for (NcclUniqueId& id : ids) stand_in.Api(0).new_id(&id);
  std::atomic<int> ended{0};
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      const NcclApi api = stand_in.Api(r);
      std::vector<void*> comms(2), streams(2), events(2);
      for (size_t i = 0; i < 2; ++i) {
        api.init(&comms[i], 2, ids[i], r);
        api.cuda.stream_create(&streams[i], 0);
        api.cuda.event_create(&events[i], 0);
      }
      const size_t to = r, from = 1 - r;
      float in = 0, out = 0;
      const auto exchange = [&](bool together) {
        if (together) api.group_start();
        api.receive(&out, 1, NcclApi::kFloat32, 1 - r, comms[from], streams[from]);
        if (!together) api.cuda.event_record(events[from], streams[from]);
        api.send(&in, 1, NcclApi::kFloat32, 1 - r, comms[to], streams[to]);
        if (together) api.group_end();
        if (together) api.cuda.event_record(events[from], streams[from]);
        api.cuda.event_record(events[to], streams[to]);
      };
      const auto wait = [&] {
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(2);
        while (std::chrono::steady_clock::now() < limit) {
          if (api.cuda.event_query(events[from]) == 0) return true;
          std::this_thread::yield();
        }
        return false;
      };
      exchange(true);  // connects
      if (!wait()) return;
      exchange(grouped);
      ended += wait();
      for (void* comm : comms) api.abort(comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ended == 2;
}

TEST_CASE("in one queue, transfers that cross without a group hang", "[comm]") {
  CHECK(EndsInOneQueue(/*grouped=*/true));
  CHECK_FALSE(EndsInOneQueue(/*grouped=*/false));
}

TEST_CASE("communicators that two ranks destroy in different orders are told", "[comm]") {
  const bool same = GENERATE(true, false);
  NcclStandIn stand_in(2);
  std::vector<NcclUniqueId> ids(2);
  for (NcclUniqueId& id : ids) stand_in.Api(0).new_id(&id);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const NcclApi api = stand_in.Api(rank);
      std::vector<void*> comms(2);
      for (size_t i = 0; i < 2; ++i) api.init(&comms[i], 2, ids[i], rank);
      if (rank == 1 && !same) std::swap(comms[0], comms[1]);
      for (void* comm : comms) api.destroy(comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(stand_in.Refused().empty() == same);
  if (!same) CHECK_THAT(stand_in.Refused(), Catch::Contains("needs one order"));
}

TEST_CASE("a copy into memory that is not pinned is refused", "[comm]") {
  Run([](Rank& rank) {
    const CudaApi& cuda = rank.api.cuda;
    float plain = 0;
    if (cuda.copy(&plain, &rank.in, sizeof plain, CudaApi::kDeviceToHost, nullptr) == 0) {
      throw std::runtime_error("accepted");
    }
  });
}

}  // namespace
}  // namespace equipoise
