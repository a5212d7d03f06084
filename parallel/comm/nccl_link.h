#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "parallel/comm/engine.h"
#include "parallel/comm/nccl_api.h"

namespace equipoise {

// One communicator of NCCL with a stream of its own.
class NcclLink {
 public:
  // Blocks until all `ranks` have come. Throws RunError.
  NcclLink(std::shared_ptr<const NcclApi> api, const NcclUniqueId& id, int ranks, int rank);
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  const NcclApi& api() const { return *api_; }
  NcclApi::Comm comm() const { return comm_; }
  NcclApi::Stream stream() const { return stream_; }

  // Ends what is under way, on the host and on the GPU, and refuses what comes. Any thread.
  void Abort();
  bool aborted() const { return aborted_; }

 private:
  std::shared_ptr<const NcclApi> api_;
  NcclApi::Comm comm_ = nullptr;
  NcclApi::Stream stream_ = nullptr;
  std::mutex mutex_;
  std::atomic<bool> aborted_{false};
};

// A call of NCCL on a link, and what it is called in messages: "ncclSend".
struct NcclCall {
  std::shared_ptr<NcclLink> link;
  const char* name;
  std::function<int(const NcclApi&, NcclApi::Comm, NcclApi::Stream)> run;
};

// Gives the GPU these calls, as one group, behind what its compute stream holds now, and the engine
// an operation that watches them: `plan` has text, tag, tensors, awaited. A call that blocks (NCCL
// connects at first use) fails by the deadline too. Wait() returns when the GPU is done and
// `finish` has run.
Work SubmitNccl(Engine& engine, CollectiveSteps plan, std::vector<NcclCall> calls,
                std::function<void()> finish = {});

}  // namespace equipoise
