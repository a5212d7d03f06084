// The communication thread over a transport that fails: whoever waits is told, never left waiting.
#include "parallel/comm/engine.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "configs/base/error.h"
#include "parallel/comm/already_reported_error.h"

namespace equipoise {
namespace {

using namespace std::chrono_literals;

struct DoneAtOnce : TransportRequest {
  bool Done() override { return true; }
};

// Receives are done at once, sends fail. The engine's thread sleeps until `open`.
class CutTransport : public Transport {
 public:
  explicit CutTransport(const std::atomic<bool>& open, bool rings = false)
      : open_(open), notifies_(rings) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::unique_ptr<TransportRequest> Send(int, const Tag&, const void*, size_t) override {
    throw RunError("the cable is cut");
  }
  std::unique_ptr<TransportRequest> Recv(int, const Tag&, void*, size_t) override {
    return std::make_unique<DoneAtOnce>();
  }
  void Publish(const RankStatus&) override {}
  void Collect(RankViews& views) override {
    for (RankView& view : views) view.heard = std::chrono::steady_clock::now();
  }
  bool Notifies() const override { return notifies_; }
  void Sleep(std::chrono::microseconds) override {
    do std::this_thread::sleep_for(100us);
    while (!open_);
  }
  void Wake() override {}

 private:
  const std::atomic<bool>& open_;
  const bool notifies_;
};

struct NeverDone : TransportRequest {
  bool Done() override { return false; }
};

// Nothing ever arrives but rank 1's word that it has given up on rank `faulty_rank`.
class SilentTransport : public CutTransport {
 public:
  SilentTransport(const std::atomic<bool>& open, int faulty_rank, bool for_all = false)
      : CutTransport(open), culprit_(faulty_rank), for_all_(for_all) {}
  int size() const override { return 3; }
  std::unique_ptr<TransportRequest> Recv(int, const Tag&, void*, size_t) override {
    return std::make_unique<NeverDone>();
  }
  void Collect(RankViews& views) override {
    CutTransport::Collect(views);
    views[1].status.phase =
        culprit_ == 1 ? RankStatus::Phase::kLeaving : RankStatus::Phase::kFailed;
    views[1].status.for_all = for_all_;
    views[1].status.faulty_rank = culprit_;
    SetText(views[1].status.failure, "rank " + std::to_string(culprit_) + " has stopped");
  }

 private:
  const int culprit_;
  const bool for_all_;
};

// Tells in which order the engine publishes a failure and cancels what has failed.
class OrderTransport : public SilentTransport {
 public:
  OrderTransport(const std::atomic<bool>& open, std::string& order)
      : SilentTransport(open, /*faulty_rank=*/2), order_(order) {}
  std::unique_ptr<TransportRequest> Recv(int, const Tag&, void*, size_t) override {
    struct Told : NeverDone {
      explicit Told(std::string& order) : order(order) {}
      ~Told() override { order += "cancelled "; }
      std::string& order;
    };
    return std::make_unique<Told>(order_);
  }
  void Publish(const RankStatus& status) override {
    if (status.phase == RankStatus::Phase::kFailed) order_ += "published ";
  }

 private:
  std::string& order_;
};

CollectiveSteps OneTransfer(Transfer::Direction direction, bool point_to_point) {
  CollectiveSteps plan;
  plan.text = direction == Transfer::Direction::kSend ? "send #1" : "recv #1";
  plan.tag = {1, point_to_point, 1};
  plan.next = [direction](int64_t phase, std::byte*, std::vector<Transfer>& transfers) {
    if (phase == 0) transfers.push_back({direction, 1, nullptr, 0});
    return phase == 0;
  };
  return plan;
}

// What Wait() says; "waits for ever" after a while without an end.
std::string Outcome(Operation& operation) {
  for (int i = 0; i < 1000 && !operation.Done(); ++i) std::this_thread::sleep_for(10ms);
  if (!operation.Done()) return "waits for ever";
  try {
    operation.Wait();
    return "done";
  } catch (const RunError& error) {
    return error.what();
  }
}

bool Told(Operation& operation) {
  try {
    operation.Wait();
  } catch (const AlreadyReportedError&) {
    return true;
  } catch (const RunError&) {
  }
  return false;
}

// Operations that the engine finds all at once.
std::vector<std::string> Outcomes(std::vector<CollectiveSteps> plans) {
  std::atomic<bool> open{false};
  std::vector<std::shared_ptr<Operation>> operations;
  std::vector<std::string> outcomes;
  CommOptions options;
  options.timeout = 60s;
  Engine engine(std::make_unique<CutTransport>(open, /*rings=*/true), options);
  std::this_thread::sleep_for(5ms);  // the thread sleeps
  for (CollectiveSteps& plan : plans) operations.push_back(engine.Submit(std::move(plan)));
  open = true;
  for (const auto& operation : operations) outcomes.push_back(Outcome(*operation));
  return outcomes;
}

constexpr auto kSend = Transfer::Direction::kSend;
constexpr auto kReceive = Transfer::Direction::kReceive;

TEST_CASE("a transfer that cannot start ends, and so do those behind it", "[comm]") {
  const auto outcomes = Outcomes({OneTransfer(kSend, true), OneTransfer(kReceive, true)});
  CHECK_THAT(outcomes[0], Catch::Contains("send #1: the cable is cut"));
  CHECK_THAT(outcomes[1], Catch::Contains("recv #1: the cable is cut"));
}

TEST_CASE("a collective is done although the next one cannot start", "[comm]") {
  const auto outcomes = Outcomes({OneTransfer(kReceive, false), OneTransfer(kSend, false)});
  CHECK(outcomes[0] == "done");
  CHECK_THAT(outcomes[1], Catch::Contains("send #1: the cable is cut"));
}

TEST_CASE("a failure is told before it cancels what other ranks may wait in", "[comm]") {
  const std::atomic<bool> open{true};
  std::string order;
  Engine engine(std::make_unique<OrderTransport>(open, order), CommOptions());
  CHECK_THROWS_WITH(engine.Submit(OneTransfer(kReceive, true))->Wait(),
                    Catch::Contains("rank 2 has stopped"));
  engine.Stop();
  CHECK_THAT(order, Catch::StartsWith("published cancelled "));
}

TEST_CASE("a thread that waits needs no other to move the bytes", "[comm]") {
  std::atomic<bool> open{false};
  Engine engine(std::make_unique<CutTransport>(open), CommOptions());
  std::this_thread::sleep_for(5ms);  // the engine's thread sleeps until the end of the test
  engine.Submit(OneTransfer(kReceive, true))->Wait();
  const auto cut = engine.Submit(OneTransfer(kSend, true));
  CHECK_THROWS_WITH(cut->Wait(), Catch::EndsWith("send #1: the cable is cut"));
  open = true;
}

// Counts what is asked of it; nothing ever arrives.
class CountingTransport : public CutTransport {
 public:
  struct Counts {
    std::atomic<int> received{0}, woken{0};
  };
  CountingTransport(const std::atomic<bool>& open, bool rings, Counts& counts)
      : CutTransport(open, rings), counts_(counts) {}
  std::unique_ptr<TransportRequest> Recv(int, const Tag&, void*, size_t) override {
    ++counts_.received;
    return std::make_unique<NeverDone>();
  }
  void Wake() override { ++counts_.woken; }

 private:
  Counts& counts_;
};

CollectiveSteps WatchedTransfer() {
  CollectiveSteps plan = OneTransfer(kReceive, true);
  plan.next = nullptr;
  plan.watch = [] { return std::make_unique<NeverDone>(); };
  plan.awaited = {1};
  return plan;
}

TEST_CASE("an operation starts when called, and only who goes on computing wakes a thread",
          "[comm]") {
  std::atomic<bool> open{false};
  CountingTransport::Counts counts;
  {
    Engine engine(std::make_unique<CountingTransport>(open, /*rings=*/false, counts),
                  CommOptions());
    std::this_thread::sleep_for(5ms);  // the engine's thread sleeps until the end of the test
    engine.ProgressInBackground();
    CHECK(counts.woken == 0);  // nothing is under way
    engine.Submit(OneTransfer(kReceive, true));
    CHECK(counts.received == 1);
    CHECK(counts.woken == 0);
    engine.ProgressInBackground();
    CHECK(counts.woken == 1);
    engine.Submit(WatchedTransfer());  // its rank's thread could not move it
    CHECK(counts.woken == 2);
    open = true;
  }
}

TEST_CASE("operations of a transport that rings are its thread's from the start", "[comm]") {
  std::atomic<bool> open{false};
  CountingTransport::Counts counts;
  {
    Engine engine(std::make_unique<CountingTransport>(open, /*rings=*/true, counts), CommOptions());
    std::this_thread::sleep_for(5ms);
    engine.Submit(OneTransfer(kReceive, true));
    CHECK(counts.received == 0);
    CHECK(counts.woken == 1);
    open = true;
  }
}

TEST_CASE("the rank that the others name has nothing to add", "[comm]") {
  const std::atomic<bool> open{true};
  CommOptions options;
  options.timeout = 60s;
  for (const int faulty_rank : {0, 2}) {
    Engine engine(std::make_unique<SilentTransport>(open, faulty_rank), options);
    for (int i = 0; i < 2; ++i) {  // also when it begins after the others' word has come
      const auto operation = engine.Submit(OneTransfer(kReceive, true));
      CHECK_THAT(Outcome(*operation), Catch::EndsWith("rank " + std::to_string(faulty_rank) +
                                                      " has stopped (rank 1 gave up first)"));
      CHECK(Told(*operation) == (faulty_rank == 0));
    }
  }
}

std::atomic<int> stuck_rank{-1}, stuck_calls{0};

TEST_CASE("a rank that is in no wait is ended some time after a failure", "[comm]") {
  const std::atomic<bool> open{true};
  CommOptions options;
  options.timeout = 60s;
  options.stuck_after = 300ms;
  options.stuck = [](int rank, const std::string& failure) {
    stuck_rank = failure == "rank 2 has stopped" ? rank : -2;
    ++stuck_calls;
  };
  for (const bool leaves : {true, false}) {
    Engine engine(std::make_unique<SilentTransport>(open, /*faulty_rank=*/2), options);
    if (leaves) engine.Leave({5, "reported"}, 1ms);
    const auto begin = std::chrono::steady_clock::now();
    const auto passed = [&] { return std::chrono::steady_clock::now() - begin; };
    while (passed() < (leaves ? 1s : 20s) && stuck_calls == 0) std::this_thread::sleep_for(10ms);
    CHECK((stuck_calls > 0) == !leaves);
    if (!leaves) CHECK(passed() > 200ms);
  }
  std::this_thread::sleep_for(400ms);
  CHECK(stuck_calls == 1);
  CHECK(stuck_rank == 0);
}

TEST_CASE("nor has a rank to add anything where one speaks for all", "[comm]") {
  const std::atomic<bool> open{true};
  CommOptions options;
  options.timeout = 60s;
  for (const bool for_all : {false, true}) {
    Engine engine(std::make_unique<SilentTransport>(open, /*faulty_rank=*/1, for_all), options);
    const auto operation = engine.Submit(OneTransfer(kReceive, true));
    CHECK_THAT(Outcome(*operation), Catch::EndsWith("rank 1 has stopped"));
    CHECK(Told(*operation) == for_all);
  }
}

}  // namespace
}  // namespace equipoise
