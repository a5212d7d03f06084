// NCCL under the engine's deadlines. The compute thread issues the calls of an operation as one
// group on the links' own streams, behind an event that marks what the compute stream holds, and
// records an event after each; the communication thread queries these events and NCCL's
// asynchronous errors. Invariant: an operation is done when all its events are; one that is
// abandoned aborts its links, after which they refuse every call; the engine keeps its tensors, as
// its kernels end later. Wait() waits on the host; WaitOnStream() puts the compute stream behind
// the events, and an operation that is given up ends its kernels, so that stream goes on too: with
// numbers that nobody sees, because the next call on any communicator throws. The tensors of an
// operation are memory of the compute stream under which it was asked for: once that stream is
// behind the events, the operation holds them no longer, however far the GPU is.

#include "parallel/comm/nccl_link.h"

#include <c10/util/Exception.h>

#include <string>
#include <thread>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {
namespace {

// A waiting thread spins this long before it sleeps, as the engine polls only every 200 us.
constexpr std::chrono::microseconds kSpin{2000};

}  // namespace

// NCCL calls in flight on the GPU. The compute thread issues them, the communication thread watches
// their events.
class NcclInFlight {
 public:
  explicit NcclInFlight(std::vector<NcclCall> calls)
      : calls_(std::move(calls)), behind_(cuda().compute_stream()) {}
  ~NcclInFlight() {
    for (const CudaApi::Event event : events_) cuda().event_destroy(event);
  }

  // Issues the calls of several operations as one group.
  static void Issue(const std::vector<std::shared_ptr<NcclInFlight>>& all) {
    try {
      for (const auto& one : all) one->Order();
      Run(all);
      for (const auto& one : all) one->Mark();
    } catch (const RunError& error) {
      for (const auto& one : all) {
        one->error_ = error.what();
        one->state_ = kFailed;
      }
    }
  }

  // Throws RunError when a call or the GPU has failed.
  bool Ended() {
    const State state = state_;
    if (state == kFailed) throw RunError(error_);
    if (state == kIssuing) return false;
    if (state == kEnded) return true;
    // Otherwise a thread that only queries would create a context on GPU 0.
    cuda().Check(cuda().set_device(cuda().device), "cudaSetDevice");
    for (size_t i = 0; i < events_.size(); ++i) {
      const int error = cuda().event_query(events_[i]);
      if (error == CudaApi::kNotReady) {
        calls_[i].link->Check();
        return false;
      }
      cuda().Check(error, "cudaEventQuery");
    }
    if (state_.exchange(kEnded) == kIssued) {
      for (const NcclCall& call : calls_) call.link->Ended();
    }
    return true;
  }

  // Puts what the compute stream gets from now on behind the calls. False where there is nothing to
  // wait for: they were not issued, or were given up.
  bool HoldUpComputeStream() {
    const State state = state_;
    if ((state != kIssued && state != kEnded) || aborted()) return false;
    const CudaApi::Stream stream = cuda().compute_stream();
    for (const CudaApi::Event event : events_) {
      cuda().Check(cuda().stream_wait_event(stream, event, 0), "cudaStreamWaitEvent");
    }
    return true;
  }

  // Whether the calls were put behind what is the compute stream now.
  bool OfComputeStream() const { return cuda().compute_stream() == behind_; }

  bool aborted() const {
    for (const NcclCall& call : calls_) {
      if (call.link->aborted()) return true;
    }
    return false;
  }
  void Abort() {
    for (const NcclCall& call : calls_) call.link->Abort();
  }

 private:
  enum State { kIssuing, kIssued, kEnded, kFailed };

  const NcclApi& api() const { return calls_.front().link->api(); }
  const CudaApi& cuda() const { return api().cuda; }

  CudaApi::Event NewEvent() {
    CudaApi::Event event = nullptr;
    cuda().Check(cuda().event_create(&event, CudaApi::kEventWithoutTiming), "cudaEventCreate");
    events_.push_back(event);
    return event;
  }

  // Puts the calls behind the work that their compute stream holds now.
  void Order() {
    if (aborted()) throw RunError("the connection was given up");
    const CudaApi::Event ready = NewEvent();
    cuda().Check(cuda().event_record(ready, behind_), "cudaEventRecord");
    for (const NcclCall& call : calls_) {
      cuda().Check(cuda().stream_wait_event(call.link->stream(), ready, 0), "cudaStreamWaitEvent");
    }
  }

  // An event behind each call.
  void Mark() {
    for (const NcclCall& call : calls_) {
      cuda().Check(cuda().event_record(NewEvent(), call.link->stream()), "cudaEventRecord");
      call.link->Began();
    }
    // The streams already wait for it.
    cuda().event_destroy(events_.front());
    events_.erase(events_.begin());
    state_ = kIssued;
  }

  // The links of calls under way.
  struct Entered {
    std::vector<NcclLink*> links;
    ~Entered() {
      for (NcclLink* link : links) link->Leave();
    }
  };

  static void Run(const std::vector<std::shared_ptr<NcclInFlight>>& all) {
    Entered entered;
    for (const auto& one : all) {
      for (const NcclCall& call : one->calls_) {
        if (!call.link->Enter()) throw RunError("the connection was given up");
        entered.links.push_back(call.link.get());
      }
    }
    const NcclApi& api = all.front()->api();
    api.Check(api.group_start(), "ncclGroupStart");
    int error = 0;
    const NcclCall* last = nullptr;
    for (const auto& one : all) {
      for (const NcclCall& call : one->calls_) {
        if (error != 0) break;
        last = &call;
        error = call.run(api, call.link->comm(), call.link->stream());
      }
    }
    const int end = api.group_end();
    for (const auto& one : all) {
      if (one->aborted()) throw RunError("the connection was given up");
    }
    api.Check(error, last->name);
    api.Check(end, last->name);
  }

  const std::vector<NcclCall> calls_;
  const CudaApi::Stream behind_;        // the compute stream of whoever has asked for them
  std::vector<CudaApi::Event> events_;  // one a call, once issued
  std::atomic<State> state_{kIssuing};
  std::string error_;
};

namespace {

// A request that aborts the operation when destroyed before its end.
class InFlightRequest : public TransportRequest {
 public:
  explicit InFlightRequest(std::shared_ptr<NcclInFlight> in_flight)
      : in_flight_(std::move(in_flight)) {}
  ~InFlightRequest() override {
    if (!done_) in_flight_->Abort();
  }
  bool Done() override { return done_ = in_flight_->Ended(); }

 private:
  std::shared_ptr<NcclInFlight> in_flight_;
  bool done_ = false;
};

class InFlightWork : public Work::State {
 public:
  InFlightWork(Engine& engine, std::shared_ptr<NcclInFlight> in_flight,
               std::shared_ptr<Operation> operation, std::function<void()> finish)
      : engine_(engine),
        in_flight_(std::move(in_flight)),
        operation_(std::move(operation)),
        finish_(std::move(finish)) {}

  void Wait() override {
    if (ended_) return;
    if (!EndsSoon()) operation_->Wait();
    if (finish_) finish_();
    finished_ = operation_->Done() ? operation_->FinishedAt() : Work::Clock::now();
    ended_ = true;
  }
  void WaitOnStream() override {
    if (ended_) return;
    if (!in_flight_->HoldUpComputeStream()) return Wait();
    if (finish_) std::exchange(finish_, nullptr)();
    // What reuses their memory comes behind the operation. Kept until the host has seen the end,
    // the tensors of all that the host is ahead of the GPU would pile up.
    if (in_flight_->OfComputeStream()) operation_->DropTensors();
    engine_.ProgressInBackground();  // watches the deadline, as this thread may wait for the device
  }
  bool Done() const override { return ended_ || operation_->Done(); }
  Work::Clock::time_point FinishedAt() const override {
    return ended_ ? finished_ : operation_->FinishedAt();
  }

 private:
  bool EndsSoon() const {
    const auto limit = Work::Clock::now() + kSpin;
    try {
      do {
        if (operation_->Done()) return false;  // Wait() knows how it ended
        // An aborted operation ends on the GPU like one that is done.
        if (in_flight_->Ended()) return !in_flight_->aborted();
        std::this_thread::yield();
      } while (Work::Clock::now() < limit);
    } catch (const RunError&) {
      // The operation reports it, with rank and group.
    }
    return false;
  }

  Engine& engine_;
  std::shared_ptr<NcclInFlight> in_flight_;
  std::shared_ptr<Operation> operation_;
  std::function<void()> finish_;
  std::atomic<bool> ended_{false};
  Work::Clock::time_point finished_;
};

// A call of NCCL that may block until other ranks make theirs, in a thread of its own: nothing ends
// it. Where they never do, the thread is left behind; the process ends with the error.
class BlockingCall {
 public:
  static std::shared_ptr<BlockingCall> Start(std::shared_ptr<const NcclApi> api, const char* name,
                                             std::function<int(const NcclApi&)> run) {
    auto call = std::make_shared<BlockingCall>();
    std::thread([call, api = std::move(api), name, run = std::move(run)]() mutable {
      // A broken GPU refuses that, and its communicator is to be aborted all the same.
      api->cuda.set_device(api->cuda.device);
      try {
        api->Check(std::exchange(run, nullptr)(*api), name);  // frees before it has ended
      } catch (const RunError& error) {
        call->error_ = error.what();
      }
      call->ended_ = true;
    }).detach();
    return call;
  }

  // Throws RunError when the call has failed.
  bool Ended() {
    if (!ended_) return false;
    if (!error_.empty()) throw RunError(error_);
    return true;
  }

 private:
  std::string error_;
  std::atomic<bool> ended_{false};
};

class BlockingRequest : public TransportRequest {
 public:
  explicit BlockingRequest(std::shared_ptr<BlockingCall> call) : call_(std::move(call)) {}
  bool Done() override { return call_->Ended(); }

 private:
  std::shared_ptr<BlockingCall> call_;
};

// Throws RunError when the call fails, or does not end by the deadline.
void Await(Engine& engine, CollectiveSteps plan, const std::shared_ptr<BlockingCall>& call) {
  plan.watch = [call] { return std::make_unique<BlockingRequest>(call); };
  engine.Submit(std::move(plan))->Wait();
}

}  // namespace

NcclLink::NcclLink(Engine& engine, CollectiveSteps plan, std::shared_ptr<const NcclApi> api,
                   const NcclUniqueId& id, int ranks, int rank)
    : api_(std::move(api)) {
  const auto comm = std::make_shared<NcclApi::Comm>(nullptr);
  Await(engine, std::move(plan),
        BlockingCall::Start(api_, "ncclCommInitRank", [=](const NcclApi& nccl) {
          nccl.cuda.Check(nccl.cuda.set_device(nccl.cuda.device), "cudaSetDevice");
          return nccl.init(comm.get(), ranks, id, rank);
        }));
  comm_ = *comm;
  const CudaApi& cuda = api_->cuda;
  cuda.Check(cuda.set_device(cuda.device), "cudaSetDevice");
  cuda.Check(cuda.stream_create(&stream_, CudaApi::kNonBlockingStream), "cudaStreamCreate");
}

NcclLink::~NcclLink() { api_->cuda.stream_destroy(stream_); }

// An operation may have been awaited by streams alone, so that the host has not seen its end.
bool NcclLink::EndsWithin(std::chrono::milliseconds limit) {
  if (under_way_ == 0) return true;
  const CudaApi& cuda = api_->cuda;
  CudaApi::Event end = nullptr;
  if (cuda.set_device(cuda.device) != 0) return false;
  if (cuda.event_create(&end, CudaApi::kEventWithoutTiming) != 0) return false;
  int error = cuda.event_record(end, stream_);
  const auto latest = Work::Clock::now() + limit;
  while (error == 0 && !aborted_ && (error = cuda.event_query(end)) == CudaApi::kNotReady &&
         Work::Clock::now() < latest) {
    std::this_thread::yield();
    error = 0;
  }
  cuda.event_destroy(end);
  return error == 0;
}

// Whether this call is the first. The communicator is freed outside the mutex, as whoever asks for
// its errors is not to wait for other ranks.
bool NcclLink::GiveUp() {
  std::lock_guard lock(mutex_);
  return !aborted_.exchange(true);
}

bool NcclLink::Enter() {
  std::lock_guard lock(mutex_);
  if (aborted_) return false;
  ++calls_;
  return true;
}

void NcclLink::Leave() {
  std::lock_guard lock(mutex_);
  if (--calls_ == 0) left_.notify_all();
}

void NcclLink::AwaitCalls() {
  std::unique_lock lock(mutex_);
  left_.wait_for(lock, kCallsEnd, [this] { return calls_ == 0; });
}

void NcclLink::Close(Engine& engine, CollectiveSteps plan) {
  if (!EndsWithin(engine.options().timeout) || !GiveUp()) return;
  const auto destroying = BlockingCall::Start(
      api_, "ncclCommDestroy",
      [link = shared_from_this()](const NcclApi& api) { return api.destroy(link->comm_), 0; });
  try {
    Await(engine, std::move(plan), destroying);
  } catch (const RunError&) {  // NOLINT(bugprone-empty-catch): the next communication tells it
  }
}

void NcclLink::Check() {
  std::lock_guard lock(mutex_);
  if (aborted_) return;
  int error = 0;
  api_->Check(api_->async_error(comm_, &error), "ncclCommGetAsyncError");
  if (error != NcclApi::kInProgress) api_->Check(error, "NCCL");
}

// Waits for nothing: the other ranks, for whom NCCL may wait, abort their links in other orders,
// and only once they have heard of the failure.
void NcclLink::Abort() {
  if (!GiveUp()) return;
  BlockingCall::Start(api_, "ncclCommAbort", [link = shared_from_this()](const NcclApi& api) {
    link->AwaitCalls();
    return api.abort(link->comm_);
  });
}

Work NcclBatch::Add(Engine& engine, CollectiveSteps plan, std::vector<NcclCall> calls,
                    std::function<void()> finish) {
  EQUIPOISE_CHECK(!calls.empty() && !plan.awaited.empty(), plan.text);
  const auto in_flight = std::make_shared<NcclInFlight>(std::move(calls));
  plan.watch = [in_flight] { return std::make_unique<InFlightRequest>(in_flight); };
  auto operation = engine.Submit(std::move(plan));
  operations_.push_back(in_flight);
  return Work(
      std::make_shared<InFlightWork>(engine, in_flight, std::move(operation), std::move(finish)));
}

void NcclBatch::Issue() {
  const auto operations = std::exchange(operations_, {});
  if (!operations.empty()) NcclInFlight::Issue(operations);
}

}  // namespace equipoise
