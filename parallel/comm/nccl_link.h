#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "parallel/comm/engine.h"
#include "parallel/comm/nccl_api.h"

namespace equipoise {

// An NCCL communicator with a stream of its own. NCCL may wait for the other ranks where it frees a
// communicator; one that is neither closed nor aborted is left to the end of the process. Owned by
// shared pointers.
class NcclLink : public std::enable_shared_from_this<NcclLink> {
 public:
  // Waits until all `ranks` ranks have called it (ncclCommInitRank). `plan` has text, tag and the
  // ranks awaited: throws RunError that names them where one does not come by the deadline.
  NcclLink(Engine& engine, CollectiveSteps plan, std::shared_ptr<const NcclApi> api,
           const NcclUniqueId& id, int ranks, int rank);
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  const NcclApi& api() const { return *api_; }
  NcclApi::Comm comm() const { return comm_; }
  NcclApi::Stream stream() const { return stream_; }

  // Throws RunError when NCCL has met an error in an operation under way
  // (ncclCommGetAsyncError). Any thread.
  void Check();
  // Aborts operations under way, on the host and on the GPU, and refuses later ones. Returns at
  // once: the operations end a moment later, on a GPU that still works; where a thread is inside of
  // calls, when it has left them, or after kCallsEnd, as they may wait for that. Any thread.
  void Abort();
  bool aborted() const { return aborted_; }
  // Around calls that use comm(), which is not freed meanwhile. False: it was given up, make none.
  bool Enter();
  void Leave();
  static constexpr std::chrono::milliseconds kCallsEnd{2000};
  // Destroys the communicator (ncclCommDestroy) when the GPU has ended its operations; where they
  // take longer than the engine's deadline, it is left. Later calls are refused. Waits until the
  // other ranks, in `plan` as for the constructor, close theirs, all in one order; when one does
  // not, the engine fails.
  void Close(Engine& engine, CollectiveSteps plan);

  // Operations that the GPU has not ended.
  void Began() { ++under_way_; }
  void Ended() { --under_way_; }

 private:
  bool EndsWithin(std::chrono::milliseconds limit);
  bool GiveUp();
  void AwaitCalls();

  std::shared_ptr<const NcclApi> api_;
  NcclApi::Comm comm_ = nullptr;
  NcclApi::Stream stream_ = nullptr;
  std::mutex mutex_;                  // held by what needs a communicator that is not freed
  std::atomic<bool> aborted_{false};  // or destroyed
  int calls_ = 0;                     // under way
  std::condition_variable left_;
  std::atomic<int> under_way_{0};
};

// A call of NCCL on a link, with its name for messages: "ncclSend".
struct NcclCall {
  std::shared_ptr<NcclLink> link;
  const char* name;
  std::function<int(const NcclApi&, NcclApi::Comm, NcclApi::Stream)> run;
};

class NcclInFlight;

// Operations whose calls go to the GPU as one NCCL group.
class NcclBatch {
 public:
  // Submits to the engine an operation that watches the calls, which Issue() makes. `plan` has
  // text, tag, tensors and awaited. Wait() returns when the GPU is done and `finish` has run.
  Work Add(Engine& engine, CollectiveSteps plan, std::vector<NcclCall> calls,
           std::function<void()> finish = {});
  // Issues the calls, each ordered after what the compute stream under which Add() was called holds
  // now. A call that blocks (NCCL connects at first use) fails by the deadline too. What fails is
  // told by the works.
  void Issue();

 private:
  std::vector<std::shared_ptr<NcclInFlight>> operations_;
};

}  // namespace equipoise
